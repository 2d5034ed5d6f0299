"""How far the reference loop is from torch's own LSTM, GRU and RNN on the CPU: a baseline, not a claim of speed.

The reference loop is the specification: one Python call of the cell a step. It is here to be right, and this says
what being right costs until faster backends stand beside it. Results are compared before anything is timed.

    python benchmarks/reference.py [--rounds 7] [--threads 2]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from record import interleaved, machine, save, summary
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import throughtime as tt


class Shape(NamedTuple):
    """The size of a batch: B rows of T steps of I features, H units."""

    B: int
    T: int
    I: int  # noqa: E741 (the letter of the dimension)
    H: int

    def __str__(self) -> str:
        return f"B{self.B} T{self.T} I{self.I} H{self.H}"


SHAPES = (Shape(1, 100, 64, 64), Shape(32, 50, 28, 150), Shape(32, 100, 128, 128), Shape(16, 300, 64, 64))
Run = Callable[[Tensor, list[int] | None], Tensor]


def lstm_pair(shape: Shape) -> tuple[Any, Any]:
    """Our LSTM and torch's with the same weights: ours orders the gates i j f o, torch i f j o."""
    ours, theirs = tt.LSTMCell(shape.H, input_size=shape.I), nn.LSTM(shape.I, shape.H, batch_first=True)
    kernel, bias = (
        torch.cat([part[..., gate] for gate in _gates(shape.H, "ifjo")], -1) for part in (ours.kernel, ours.bias)
    )
    forget = torch.cat([torch.full((shape.H,), ours.forget_bias * (gate == "f")) for gate in "ifjo"])
    _fill(theirs, kernel, bias + forget, shape.I)
    return ours, theirs


def rnn_pair(shape: Shape) -> tuple[Any, Any]:
    """Our basic cell and torch's RNN with the same weights."""
    ours, theirs = tt.BasicRNNCell(shape.H, input_size=shape.I), nn.RNN(shape.I, shape.H, batch_first=True)
    _fill(theirs, ours.kernel, ours.bias, shape.I)
    return ours, theirs


def gru_pair(shape: Shape) -> tuple[Any, Any]:
    """Our GRU and torch's: like work, other results (TensorFlow resets before the product, torch after it)."""
    return tt.GRUCell(shape.H, input_size=shape.I), nn.GRU(shape.I, shape.H, batch_first=True)


PAIRS = {"LSTM": lstm_pair, "GRU": gru_pair, "RNN": rnn_pair}


def _gates(units: int, order: str) -> list[slice]:
    return [slice(units * "ijfo".index(gate), units * ("ijfo".index(gate) + 1)) for gate in order]


@torch.no_grad()
def _fill(module: Any, kernel: Tensor, bias: Tensor, input_size: int) -> None:
    module.weight_ih_l0.copy_(kernel[:input_size].T)
    module.weight_hh_l0.copy_(kernel[input_size:].T)
    module.bias_ih_l0.copy_(bias)
    module.bias_hh_l0.zero_()


def run_ours(cell: Any) -> Run:
    return lambda inputs, lengths: tt.dynamic_rnn(cell, inputs, sequence_length=lengths, dtype=inputs.dtype)[0]


def run_theirs(module: Any) -> Run:
    """torch's module; with lengths through a `PackedSequence`, packing and unpacking included."""

    def run(inputs: Tensor, lengths: list[int] | None) -> Tensor:
        if lengths is None:
            return module(inputs)[0]
        packed = pack_padded_sequence(inputs, torch.tensor(lengths), batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(module(packed)[0], batch_first=True, total_length=inputs.shape[1])[0]

    return run


def gru_by_hand(cell: Any) -> Run:
    """TensorFlow's GRU written out over the whole batch, to compare ours with."""
    gates, candidate = cell.gates, cell.candidate

    def run(inputs: Tensor, lengths: list[int] | None) -> Tensor:
        h, outputs = inputs.new_zeros(len(inputs), cell.num_units), []
        for x in inputs.unbind(1):
            r, u = torch.sigmoid(torch.cat([x, h], 1) @ gates.kernel + gates.bias).chunk(2, 1)
            c = torch.tanh(torch.cat([x, r * h], 1) @ candidate.kernel + candidate.bias)
            h = u * h + (1 - u) * c
            outputs.append(h)
        ends = torch.tensor(lengths or [inputs.shape[1]] * len(inputs))
        return torch.stack(outputs, 1) * (torch.arange(inputs.shape[1]) < ends[:, None])[..., None]

    return run


def with_gradient(run: Run, inputs: Tensor, lengths: list[int] | None) -> tuple[Tensor, Tensor]:
    """Outputs and the gradient of the inputs, for a loss that weighs every output differently."""
    inputs = inputs.clone().requires_grad_()
    outputs = run(inputs, lengths)
    weights = torch.linspace(-1, 1, outputs.numel()).view_as(outputs)
    return outputs.detach(), torch.autograd.grad((outputs * weights).sum(), inputs)[0]


def check(ours: Run, expected: Run, inputs: Tensor, lengths: list[int] | None) -> None:
    """Raise unless both give the same outputs and the same input gradients."""
    for got, want in zip(with_gradient(ours, inputs, lengths), with_gradient(expected, inputs, lengths), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def train(run: Run, inputs: Tensor, lengths: list[int] | None) -> Callable[[], object]:
    return lambda: run(inputs, lengths).sum().backward()


def infer(run: Run, inputs: Tensor, lengths: list[int] | None) -> Callable[[], object]:
    return torch.no_grad()(lambda: run(inputs, lengths))


def measure(kind: str, shape: Shape, lengths: list[int] | None, rounds: int) -> Iterator[dict[str, Any]]:
    """One result for training and one for inference, after checking that there is something worth timing."""
    cell, module = PAIRS[kind](shape)
    ours, theirs = run_ours(cell), run_theirs(module)
    inputs = torch.randn(shape.B, shape.T, shape.I)
    check(ours, gru_by_hand(cell) if kind == "GRU" else theirs, inputs, lengths)
    for mode, prepare in (("train", train), ("infer", infer)):
        runs = {"throughtime": prepare(ours, inputs, lengths), "torch": prepare(theirs, inputs, lengths)}
        times = {name: summary(seconds) for name, seconds in interleaved(runs, rounds).items()}
        yield {
            "cell": kind,
            "shape": shape._asdict(),
            "lengths": "T" if lengths is None else "1..T",
            "mode": mode,
            **times,
            "ratio": round(times["throughtime"]["median_ms"] / times["torch"]["median_ms"], 2),
        }


def cases() -> Iterator[tuple[str, Shape, list[int] | None]]:
    for kind in PAIRS:
        for shape in SHAPES:
            yield kind, shape, None
            if shape.B > 1:
                yield kind, shape, torch.randint(1, shape.T + 1, (shape.B,)).tolist()


def show(results: list[dict[str, Any]], console: Console) -> None:
    about = machine()
    table = Table(
        title="The reference loop against torch.nn (medians; a ratio above 1 means that torch is faster)",
        caption=f"{about['processor']}, {about['threads']} thread(s), torch {about['versions']['torch']}. "
        "Lengths 1..T are uniform, and torch runs them as a PackedSequence. "
        "The reference loop is the specification, not the fast path.",
    )
    for heading in ("cell", "shape", "lengths", "mode", "ours, ms", "torch, ms", "ratio"):
        table.add_column(heading, justify="right" if heading.endswith(("ms", "ratio")) else "left")
    for row in results:
        times = [f"{row[name]['median_ms']:.1f}" for name in ("throughtime", "torch")]
        shape = str(Shape(**row["shape"]))
        table.add_row(row["cell"], shape, row["lengths"], row["mode"], *times, f"{row['ratio']:.1f}")
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the reference loop against torch.nn.")
    parser.add_argument("--rounds", type=int, default=7, help="how often each side runs (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="for both (default: %(default)s)")
    arguments = parser.parse_args()
    if arguments.rounds < 1 or arguments.threads < 1:
        parser.error("--rounds and --threads must be 1 or more")
    torch.manual_seed(0)
    torch.set_num_threads(arguments.threads)
    console = Console()
    results: list[dict[str, Any]] = []
    with console.status("checking and timing") as status:
        for kind, shape, lengths in cases():
            status.update(f"{kind} {shape}{' with lengths' if lengths else ''}: checking and timing")
            results += measure(kind, shape, lengths, arguments.rounds)
    show(results, console)
    console.print(f"saved {save('reference', results)}", soft_wrap=True)


if __name__ == "__main__":
    main()
