"""`tt.nn` against `torch.nn`: values, states and all gradients, in every form that torch takes and one of ours."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence

import throughtime as tt
from compare import check_close, check_same
from nn_pairs import F64, KINDS, LENGTHS, B, H, I, T, batch, check, measured, pair, states

pytestmark = [
    pytest.mark.covers("conformance"),
    # What torch's own module says of itself.
    pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN"),
]

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "batch first": {"batch_first": True},
    "no bias": {"bias": False},
    "two layers": {"num_layers": 2},
    "both ways": {"bidirectional": True, "batch_first": True},
    "all of it": {"num_layers": 3, "bidirectional": True, "bias": False},
}
OWN_OPTIONS: dict[str, dict[str, dict[str, Any]]] = {
    "LSTM": {
        "projected": {"proj_size": 2},
        "projected, deep": {"proj_size": 2, "num_layers": 2, "bidirectional": True, "batch_first": True},
        "projected, no bias": {"proj_size": 5, "bias": False},
    },
    "GRU": {},
    "RNN": {"relu": {"nonlinearity": "relu"}, "relu, deep": {"nonlinearity": "relu", "num_layers": 2}},
}
MODULES = [(kind, name) for kind in KINDS for name in (*OPTIONS, *OWN_OPTIONS[kind])]
FORMS = ("dense", "unbatched", "packed", "packed sorted")


def options_of(kind: str, name: str) -> dict[str, Any]:
    return OPTIONS[name] if name in OPTIONS else OWN_OPTIONS[kind][name]


def test_three_states_are_one_too_many() -> None:
    h, x = torch.zeros(1, 2, 4), torch.zeros(5, 2, 3)
    for kind in (nn.LSTM, tt.nn.LSTM):
        with pytest.raises(RuntimeError, match="lstm expects two hidden states"):
            kind(3, 4)(x, (h, h, h))


@pytest.mark.parametrize("given", [False, True], ids=["zeros", "hx"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("kind", "name"), MODULES)
def test_everything_is_as_in_torch(kind: str, name: str, form: str, given: bool) -> None:
    theirs, ours = pair(kind, dtype=F64, **options_of(kind, name))
    x = batch(theirs, form)
    # It raises instead of falling back.
    with tt.backend("cpu"):
        check(theirs, ours, x, states(theirs, form) if given else None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("form", ["dense", "packed"])
@pytest.mark.parametrize("kind", KINDS)
def test_dtypes(kind: str, form: str, dtype: torch.dtype) -> None:
    theirs, ours = pair(kind, dtype=dtype, num_layers=2, bidirectional=True)
    x = batch(theirs, form, dtype)
    check(theirs, ours, x, states(theirs, form, dtype))


@pytest.mark.parametrize(("features", "units", "rows", "steps"), [(1, 1, 1, 1), (7, 63, 7, 1), (63, 7, 1, 7)])
@pytest.mark.parametrize("kind", KINDS)
def test_odd_sizes(kind: str, features: int, units: int, rows: int, steps: int) -> None:
    theirs, ours = pair(kind, (features, units), num_layers=2, bidirectional=True, dtype=F64)
    x = batch(theirs, "dense", F64, (rows, steps))
    check(theirs, ours, x, states(theirs, "dense", F64, rows))


@pytest.mark.parametrize("kind", KINDS)
def test_modes_of_gradients(kind: str) -> None:
    theirs, ours = pair(kind, dtype=F64, bidirectional=True)
    x = batch(theirs, "dense")
    with torch.no_grad():
        check_close("without gradients", theirs(x), ours(x))
    with torch.inference_mode():
        check_close("in inference mode", theirs(x), ours(x))
    for module in (theirs, ours):
        module.weight_hh_l0.requires_grad_(False)
        module.bias_ih_l0_reverse.requires_grad_(False)
    check(theirs, ours, x)
    for module in (theirs, ours):
        module.requires_grad_(False)
    assert measured(ours, x).gradients.keys() == {"inputs"}
    check(theirs, ours, x)
    assert not ours(x.detach())[0].requires_grad


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_gradients(kind: str) -> None:
    theirs, ours = pair(kind, dtype=F64, num_layers=2, bidirectional=True)
    x = batch(theirs, "dense")

    def penalty(module: Any) -> list[Tensor]:
        (first,) = torch.autograd.grad(module(x)[0].sin().sum(), x, create_graph=True)
        return list(torch.autograd.grad(first.square().sum(), [x, *module.parameters()], allow_unused=True))

    want, got = ([leaf for leaf in penalty(module) if leaf is not None] for module in (theirs, ours))
    check_close("second gradients", want, got)


class TestDropout:
    @pytest.mark.parametrize("kind", KINDS)
    def test_masks_are_drawn_as_torch_draws_them_for_packed_sequences(self, kind: str) -> None:
        theirs, ours = pair(kind, dtype=F64, num_layers=3, dropout=0.5, bidirectional=True)
        check(theirs, ours, batch(theirs, "packed"))

    @pytest.mark.parametrize("form", FORMS)
    def test_none_in_evaluation(self, form: str) -> None:
        theirs, ours = (module.eval() for module in pair("GRU", dtype=F64, num_layers=2, dropout=0.5))
        check(theirs, ours, batch(theirs, form))

    def test_falls_on_all_layers_but_the_last(self) -> None:
        """Each layer hands its inputs on: what is missing in the end, and how much is left, tells who dropped it."""
        rnn = tt.nn.RNN(400, 400, num_layers=3, nonlinearity="relu", bias=False, dropout=0.25)
        with torch.no_grad():
            for name, weight in rnn.named_parameters():
                weight.copy_(torch.eye(400) if "ih" in name else torch.zeros(400, 400))
        outputs = rnn(torch.ones(20, 5, 400))[0]
        kept = outputs != 0
        torch.testing.assert_close(outputs[kept], torch.full_like(outputs[kept], 0.75**-2))
        assert abs(kept.double().mean() - 0.75**2) < 0.01

    def test_of_everything(self) -> None:
        ours = tt.nn.GRU(I, H, num_layers=2, dropout=1.0)
        with torch.no_grad():
            assert torch.equal(ours(torch.randn(T, B, I))[0], ours(torch.randn(T, B, I))[0])


class TestLengths:
    """`sequence_length`, which torch does not have: the results of packed sequences, padded."""

    @pytest.mark.parametrize("batch_first", [False, True])
    @pytest.mark.parametrize("given", [False, True], ids=["zeros", "hx"])
    @pytest.mark.parametrize("kind", KINDS)
    def test_as_if_packed(self, kind: str, given: bool, batch_first: bool) -> None:
        options = {"num_layers": 2, "bidirectional": True, "batch_first": batch_first}
        theirs, ours = pair(kind, dtype=F64, **options)
        x = batch(theirs, "dense")
        hx = states(theirs, "dense") if given else None

        class Packing(nn.Module):
            def forward(self, x: Tensor, hx: Any) -> Any:
                packed = pack_padded_sequence(x, torch.tensor(LENGTHS), batch_first, enforce_sorted=False)
                outputs, last = theirs(packed, hx)
                return nn.utils.rnn.pad_packed_sequence(outputs, batch_first)[0], last

            named_parameters = theirs.named_parameters

        want = measured(Packing(), x, hx)
        for lengths in (LENGTHS, torch.tensor(LENGTHS), torch.tensor(LENGTHS, dtype=torch.int32)):
            with tt.backend("cpu"):
                check_same(want, measured(ours, x, hx, sequence_length=lengths))

    def test_none_of_nothing_and_beyond(self) -> None:
        ours = tt.nn.LSTM(I, H, batch_first=True, bidirectional=True, dtype=F64)
        x, hx = batch(ours, "dense"), states(ours, "dense")
        outputs, (h, c) = ours(x, hx, sequence_length=[0, T, 99, 2])
        assert not outputs[0].any()
        assert not outputs[3, 2:].any()
        assert torch.equal(h[:, 0], hx[0][:, 0])
        assert torch.equal(c[:, 0], hx[1][:, 0])
        check_close("full length", ours(x, hx)[0][1:3], outputs[1:3])
        nothing, (h, _) = ours(x, hx, sequence_length=[0] * B)
        assert not nothing.any()
        assert torch.equal(h, hx[0])

    def test_poison_in_the_padding(self) -> None:
        ours = tt.nn.GRU(I, H, batch_first=True, bidirectional=True, num_layers=2)
        x = torch.randn(2, T, I)
        x[1, 2:] = torch.nan
        x.requires_grad_()
        outputs, last = ours(x, sequence_length=[T, 2])
        (outputs.sum() + last.sum()).backward()
        assert outputs.isfinite().all()
        assert x.grad is not None
        assert x.grad.isfinite().all()
        assert not x.grad[1, 2:].any()
        assert all(weight.grad.isfinite().all() for weight in ours.parameters())


class TestShapes:
    @pytest.mark.parametrize("kind", KINDS)
    def test_an_empty_batch(self, kind: str) -> None:
        theirs, ours = pair(kind, num_layers=2, bidirectional=True)
        check_close("an empty batch", theirs(torch.randn(T, 0, I)), ours(torch.randn(T, 0, I)))

    def test_no_steps(self) -> None:
        """Torch refuses these; here the state is what it was."""
        ours = tt.nn.GRU(I, H)
        hx = torch.randn(1, B, H)
        outputs, last = ours(torch.randn(0, B, I), hx)
        assert outputs.shape == (0, B, H)
        assert torch.equal(last, hx)

    @pytest.mark.parametrize("kind", KINDS)
    def test_memory_in_another_order(self, kind: str) -> None:
        theirs, ours = pair(kind, dtype=F64, batch_first=True)
        x = torch.randn(T, I, B, dtype=F64).permute(2, 0, 1).requires_grad_()
        check(theirs, ours, x)

    def test_sequences_one_by_one(self) -> None:
        theirs, ours = pair("LSTM", dtype=F64)
        packed = pack_sequence([torch.randn(length, I, dtype=F64) for length in (4, 2, 1)])
        check(theirs, ours, packed._replace(data=packed.data.requires_grad_()))

    def test_states_in_a_list(self) -> None:
        theirs, ours = pair("LSTM")
        x, hx = torch.randn(T, B, I), [torch.randn(1, B, H), torch.randn(1, B, H)]
        check_close("results", theirs(x, hx), ours(x, hx))

    def test_results_are_the_callers_own(self) -> None:
        ours = tt.nn.GRU(I, H)
        with torch.no_grad():
            x, hx = torch.randn(T, B, I), torch.randn(1, B, H)
            start = hx.clone()
            for _ in range(3):
                outputs, last = ours(x, hx)
                kept = outputs[-1].clone()
                last.zero_()
                assert torch.equal(outputs[-1], kept)
                assert torch.equal(hx, start)


@pytest.mark.parametrize("kind", KINDS)
def test_autocast(kind: str) -> None:
    """Results are of its dtype, as on a GPU."""
    _, ours = pair(kind, num_layers=2)
    x = torch.randn(T, B, I)
    exact = ours(x)[0]
    with torch.autocast("cpu", torch.bfloat16):
        outputs, last = ours(x)
    assert outputs.dtype is torch.bfloat16
    assert all(leaf.dtype is torch.bfloat16 for leaf in (last if kind == "LSTM" else [last]))
    check_close("outputs", exact.bfloat16(), outputs)
    outputs.float().sum().backward()
    assert all(weight.grad.dtype is torch.float32 for weight in ours.parameters())
    double = ours.double()
    with torch.autocast("cpu", torch.bfloat16):
        assert double(x.double())[0].dtype is F64


class TestCells:
    """`module.cell(...)`: one step of a layer."""

    @pytest.mark.parametrize("kind", KINDS)
    def test_by_hand(self, kind: str) -> None:
        module = getattr(tt.nn, kind)(I, H, num_layers=2, bidirectional=True, dtype=F64)
        x, zeros = torch.randn(T, B, I, dtype=F64), torch.zeros(B, H, dtype=F64)
        layer: Any = x
        for number in range(2):
            sides = []
            for reverse in (False, True):
                cell = module.cell(number, reverse=reverse)
                state: Any = (zeros, zeros) if kind == "LSTM" else zeros
                steps = []
                for now in layer.flip(0) if reverse else layer:
                    output, state = cell(now, state)
                    steps.append(output)
                sides.append(torch.stack(steps[::-1] if reverse else steps))
            layer = torch.cat(sides, -1)
        check_close("outputs", layer, module(x)[0])

    def test_parameters_are_the_modules(self) -> None:
        module = tt.nn.LSTM(I, H, num_layers=2, bidirectional=True, proj_size=2)
        names = [name for name, _ in module.named_parameters() if name.endswith("_l1_reverse")]
        cell = module.cell(1, reverse=True)
        assert [f"{name}_l1_reverse" for name, _ in cell.named_parameters()] == names
        assert all(getattr(module, f"{name}_l1_reverse") is weight for name, weight in cell.named_parameters())

    def test_kernels_take_them(self) -> None:
        for kind, name in itertools.product(KINDS, ("plain", "no bias")):
            module = getattr(tt.nn, kind)(I, H, **OPTIONS[name])
            assert tt.explain(module.cell(), torch.randn(T, B, I), time_major=True).backend == "cpu"

    def test_all_gates_are_one_product_of_the_backward_loop(self) -> None:
        plan = str(tt.explain(tt.nn.LSTM(I, H).cell(), torch.randn(T, B, I)))
        loop = plan.partition("backward: in the loop")[2].partition("backward: after the loop")[0]
        assert loop.count(" = mm(") == 1
