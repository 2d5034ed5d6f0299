"""Training against the original: TensorFlow's own `dynamic_rnn`, in graph mode, with the same weights.

Inputs are time-major, where TensorFlow is fastest. Outputs and the gradients of inputs and weights are compared before
anything is timed.

    python benchmarks/against_tensorflow.py [--quick]
"""

from __future__ import annotations

from functools import partial

import torch

import throughtime as tt
from full_speed import floor
from layouts import Row
from peer import Peer, running, versions
from record import interleaved, ratio, summary, timed
from runs import backend_of, check, ours, training
from shapes import ANCHORS, LONG, MEDIUM, SMALL, TINY, Shape
from suite import Options, read_options, run_suite

CELLS = {"LSTM": tt.LSTMCell, "GRU": tt.GRUCell, "RNN": tt.BasicRNNCell}
CASES = [(kind, shape) for kind in CELLS for shape in (ANCHORS if kind == "LSTM" else (SMALL, MEDIUM, LONG))]
QUICK = [(kind, TINY) for kind in CELLS]


def measure(options: Options, peer: Peer, case: tuple[str, Shape]) -> Row:
    kind, shape = case
    cell = CELLS[kind](shape.H, input_size=shape.I)
    inputs = torch.randn(shape.T, shape.B, shape.I, requires_grad=True)
    cotangent = torch.randn(shape.T, shape.B, shape.H)
    weights = tt.interop.tf_variables(cell, "rnn")
    our_step = training(ours(cell, time_major=True), inputs, list(weights.values()), cotangent)
    about = {"cell": type(cell).__name__, "units": shape.H}
    answers = peer.load(about, {"inputs": inputs, "cotangent": cotangent, **weights})
    # The inputs that come back are the gradient of those that went.
    want = [answers[name] for name in ("outputs", "inputs", *weights)]
    difference = check(f"{kind} {shape}", list(our_step()), [*want[:2], tuple(want[2:])])
    turns = {"throughtime": timed(our_step), "tensorflow": peer.turn}
    seconds = interleaved(turns, rounds=options.rounds, seconds=options.seconds)
    times = {who: summary(taken) for who, taken in seconds.items()}
    return {
        "cell": kind,
        **shape.named(),
        **floor(kind, shape, training=True),
        **times,
        "ratio": ratio(times["tensorflow"], times["throughtime"]),
        "backend": backend_of(cell, inputs.transpose(0, 1)),
        "difference": difference,
    }


def main() -> None:
    options = read_options(__doc__ or "")
    with running("tensorflow") as peer:
        if peer is None:
            return
        cases = QUICK if options.quick else CASES
        run_suite("against-tensorflow", cases, partial(measure, options, peer), options, versions("tensorflow", peer))


if __name__ == "__main__":
    main()
