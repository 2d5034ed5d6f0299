"""Every cell beyond the core: against the oracle and on every backend, and what is its own."""

from __future__ import annotations

import copy
import math
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import throughtime as tt
from backends import check_on, plan_of, raises_refusal
from compare import check_close
from descriptors import MORE_DESCRIPTORS, Case, Descriptor, poisoned
from unrolls import COMPILED, EVERY_UNROLL

pytestmark = pytest.mark.covers("conformance")

LENGTHS = [2, 0, 4, 1, 3]
REFUSED = {
    "ConvLSTM": "is not in the vocabulary of row programs",
    "Conv1DLSTM": "is not in the vocabulary of row programs",
    "Conv2DLSTM": "is not in the vocabulary of row programs",
    "Conv3DLSTM": "is not in the vocabulary of row programs",
}
"""What the kernels do not take, and why; everything else they do."""

every_cell = pytest.mark.parametrize("descriptor", MORE_DESCRIPTORS, ids=lambda descriptor: descriptor.name)


def case_of(descriptor: Descriptor, dtype: torch.dtype = torch.float64) -> Case:
    case = descriptor.case(len(LENGTHS), 4, dtype)
    # Addresses in a memory are shares of one: random numbers would be no state of this cell.
    case = case._replace(state=None) if descriptor.name == "NTM" else case
    return case._replace(inputs=poisoned(case.inputs, LENGTHS))


@every_cell
def test_reference_against_the_oracle(descriptor: Descriptor) -> None:
    EVERY_UNROLL["dynamic"].check(case_of(descriptor), LENGTHS, "reference")


@every_cell
@pytest.mark.parametrize("backend", COMPILED)
def test_compiled_against_the_reference(descriptor: Descriptor, backend: str) -> None:
    case = case_of(descriptor)
    reason = REFUSED.get(descriptor.name) if backend == "cpu" else None
    if reason is None:
        check_on(backend, case, LENGTHS)
        return
    with raises_refusal(backend, reason), tt.backend(backend):
        tt.dynamic_rnn(case.cell, case.inputs, LENGTHS, case.state, case.dtype)


@every_cell
def test_which_backend(descriptor: Descriptor) -> None:
    plan = plan_of(case_of(descriptor, torch.float32))
    assert plan.backend == ("aten" if descriptor.name in REFUSED else "cpu"), plan.reasons


@every_cell
def test_in_single_precision_both_ways(descriptor: Descriptor) -> None:
    EVERY_UNROLL["both"].check(case_of(descriptor, torch.float32), LENGTHS)


@every_cell
def test_from_the_zero_state(descriptor: Descriptor) -> None:
    case = case_of(descriptor)._replace(state=None)
    outputs, final = tt.dynamic_rnn(case.cell, case.inputs, LENGTHS, dtype=case.dtype)
    for leaf in pytree.tree_leaves((outputs, final)):
        # The stabiliser of an exponential gate is -inf for a sequence that has not begun.
        assert not leaf.isnan().any()
        assert leaf.shape[0] == len(LENGTHS)


@every_cell
def test_copies_and_repr(descriptor: Descriptor) -> None:
    """A cell can be copied before it is built and after, and says what it is."""
    fresh = copy.deepcopy(descriptor.make(4))
    assert type(fresh).__name__ in repr(fresh)
    case = case_of(descriptor)
    twin = copy.deepcopy(case.cell)
    assert [*twin.state_dict()] == [*case.cell.state_dict()]
    fresh.load_state_dict(case.cell.state_dict())
    for cell in (descriptor.make(4), case.cell):
        restored = pickle.loads(pickle.dumps(cell))
        assert restored.state_size == cell.state_size
        assert type(restored.state_size) is type(cell.state_size)


IN_ANOTHER_PROCESS = """
import sys, torch
cell, state, spec = torch.load(sys.argv[1], weights_only=False)
assert type(state) is cell.state_tuple_type, type(state)
assert type(torch.utils._pytree.treespec_loads(spec).unflatten(list(state))) is type(state)
print(cell(torch.ones(2, 4), state)[0].sum().item())
"""


@pytest.mark.parametrize("kind", [tt.cells.GridLSTMCell, tt.cells.BidirectionalGridLSTMCell])
def test_states_of_a_grid_are_known_elsewhere(kind: Any, tmp_path: Path) -> None:
    """Their types are made when a cell is: two cells that are alike, and another process, have the same."""
    cell, other = (kind(3, feature_size=2, frequency_skip=1, num_frequency_blocks=[3]) for _ in range(2))
    assert cell.state_tuple_type is other.state_tuple_type is copy.deepcopy(cell).state_tuple_type
    _, state = cell(torch.ones(2, 4), cell.zero_state(2, torch.float32))
    state = pytree.tree_map(torch.Tensor.detach, state)
    assert type(copy.copy(state)) is type(copy.deepcopy(state)) is type(state)
    want, _ = cell(torch.ones(2, 4), state)
    torch.save((cell, state, pytree.treespec_dumps(pytree.tree_structure(state))), tmp_path / "saved.pt")
    command = [sys.executable, "-c", IN_ANOTHER_PROCESS, str(tmp_path / "saved.pt")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(done.stdout) == pytest.approx(want.sum().item(), rel=1e-5)


def noisy_cells() -> dict[str, Any]:
    return {
        "zoneout": lambda seed: tt.cells.ZoneoutWrapper(tt.LSTMCell(6), tt.LSTMStateTuple(0.5, 0.2), seed=seed),
        "recurrent dropout, LSTM": lambda seed: tt.cells.RecurrentDropoutLSTMCell(6, 0.6, seed=seed),
        "recurrent dropout, GRU": lambda seed: tt.cells.RecurrentDropoutGRUCell(6, 0.6, seed=seed),
        "layer norm and dropout": lambda seed: tt.cells.LayerNormBasicLSTMCell(
            6, dropout_keep_prob=0.6, dropout_prob_seed=seed
        ),
    }


noisy = pytest.mark.parametrize("name", noisy_cells())


@noisy
def test_noise_is_compiled_and_seeded(name: str) -> None:
    """Two cells of one seed draw the same masks; evaluation mode draws none; kernels take them all."""
    x = torch.randn(3, 5, 4)
    first, second = (noisy_cells()[name](7) for _ in range(2))
    outputs = tt.dynamic_rnn(first, x, dtype=torch.float32)[0]
    second.build(4)
    second.load_state_dict(first.state_dict())
    assert torch.equal(tt.dynamic_rnn(second, x, dtype=torch.float32)[0], outputs)
    assert not torch.equal(tt.dynamic_rnn(first, x, dtype=torch.float32)[0], outputs)
    assert tt.explain(first, x).backend == "cpu"
    first.eval()
    assert torch.equal(*(tt.dynamic_rnn(first, x, dtype=torch.float32)[0] for _ in range(2)))


@noisy
@pytest.mark.parametrize("backend", ["reference", "aten", "cpu"])
def test_gradients_are_of_the_masks_that_were_drawn(name: str, backend: str) -> None:
    """Finite differences, every run with the same seed."""
    cell = noisy_cells()[name](None).double()
    x = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    tt.dynamic_rnn(cell, x, dtype=torch.float64)

    def run(inputs: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(5)
        with tt.backend(backend):
            return tt.dynamic_rnn(cell, inputs, [3, 2], dtype=torch.float64)[0]

    assert torch.autograd.gradcheck(run, (x,))


def test_zoneout_keeps_or_takes() -> None:
    """Each unit of the state is the old one or the new one, as often as the rate says; on average in evaluation."""
    cell = tt.cells.ZoneoutWrapper(tt.GRUCell(500, input_size=3), 0.3)
    x, old = torch.randn(1, 3), torch.randn(1, 500)
    new, _ = cell.cell(x, old)
    output, state = cell(x, old)
    kept, taken = state == old, torch.isclose(state, new)
    assert (kept | taken).all()
    assert 0.2 < kept.float().mean() < 0.4
    assert output is state
    torch.testing.assert_close(cell.eval()(x, old)[1], 0.3 * old + 0.7 * new)


def test_variational_dropout_is_that_of_gal() -> None:
    """One mask for all steps of a sequence, on the way from step to step."""
    cell = tt.DropoutWrapper(tt.GRUCell(50), state_keep_prob=0.5, variational_recurrent=True, dtype=torch.float32)
    _, _, states = tt.dynamic_rnn(cell, torch.randn(2, 6, 3), dtype=torch.float32, all_states=True)
    dropped = states == 0
    assert torch.equal(dropped, dropped[:1, :1].expand_as(dropped))
    assert 0.3 < dropped[0, 0].float().mean() < 0.7


def test_slstm_is_the_unstabilised_one() -> None:
    """The stabiliser changes nothing but the range: gates by exp, normalised by their sum."""
    cell = tt.cells.SLSTMCell(4, exponential_forget_gate=True, input_size=3, dtype=torch.float64)
    x = torch.randn(2, 5, 3, dtype=torch.float64)
    outputs, _ = tt.dynamic_rnn(cell, x, dtype=torch.float64)
    c = n = h = torch.zeros(2, 4, dtype=torch.float64)
    for step in range(5):
        z, i, f, o = (x[:, step] @ cell.kernel + h @ cell.recurrent_kernel + cell.bias).chunk(4, 1)
        c, n = f.exp() * c + i.exp() * z.tanh(), f.exp() * n + i.exp()
        h = torch.sigmoid(o) * c / n
        torch.testing.assert_close(outputs[:, step], h)


def test_slstm_gates_may_be_huge() -> None:
    cell = tt.cells.SLSTMCell(4, exponential_forget_gate=True, input_size=3)
    outputs, _ = tt.dynamic_rnn(cell, 1e4 * torch.randn(2, 50, 3), dtype=torch.float32)
    outputs.sum().backward()
    assert outputs.isfinite().all()
    assert cell.kernel.grad.isfinite().all()


def test_block_cells_are_the_plain_ones() -> None:
    x = torch.randn(2, 5, 3)
    block, plain = tt.cells.GRUBlockCell(4, input_size=3), tt.GRUCell(4, input_size=3)
    plain.load_state_dict(dict(zip(plain.state_dict(), block.state_dict().values(), strict=True)))
    torch.testing.assert_close(
        tt.dynamic_rnn(block, x, dtype=torch.float32), tt.dynamic_rnn(plain, x, dtype=torch.float32)
    )
    assert tt.cells.LSTMBlockCell(4, cell_clip=0).cell_clip is None
    assert tt.cells.LSTMBlockCell(4, cell_clip=0.5).cell_clip == 0.5
    names = [*tt.interop.tf_variables(tt.cells.LSTMBlockCell(4, input_size=3, use_peephole=True))]
    assert names == [*tt.interop.tf_variables(tt.LSTMCell(4, use_peepholes=True, input_size=3))]


def test_wrappers_that_add_no_level_to_names() -> None:
    """As TensorFlow's: what is inside has the names it has alone, and the gates of a highway lie beside it."""
    alone = [*tt.interop.tf_variables(tt.GRUCell(3, input_size=3))]
    gates = ["rnn/carry_w", "rnn/carry_b", "rnn/transform_w", "rnn/transform_b"]
    wrapped = tt.cells.CompiledWrapper(tt.cells.ZoneoutWrapper(tt.GRUCell(3, input_size=3), 0.1))
    assert [*tt.interop.tf_variables(wrapped)] == alone
    highway = tt.cells.HighwayWrapper(tt.GRUCell(3), couple_carry_transform_gates=False, input_size=3)
    assert [*tt.interop.tf_variables(highway)] == [*gates, *alone]
    twice = tt.cells.HighwayWrapper(tt.cells.HighwayWrapper(tt.GRUCell(3)))
    words = "two parameters have TensorFlow's name 'rnn/carry_w': got `carry_w` and `cell.carry_w`, expected a name"
    with pytest.raises(ValueError, match=re.escape(words)):
        tt.interop.tf_variables(twice)
    apart = tt.cells.HighwayWrapper(tt.MultiRNNCell([twice.cell]))
    assert len(tt.interop.tf_variables(apart)) == len([*apart.parameters()])
    stack = tt.MultiRNNCell([tt.cells.HighwayWrapper(tt.GRUCell(3), input_size=3)])
    names = [*tt.interop.tf_variables(stack)]
    assert names[:2] == ["rnn/multi_rnn_cell/cell_0/carry_w", "rnn/multi_rnn_cell/cell_0/carry_b"]
    assert names[2:] == [name.replace("rnn/", "rnn/multi_rnn_cell/cell_0/", 1) for name in alone]


def test_fixed_ratio_is_not_learnt() -> None:
    cell = tt.cells.PhasedLSTMCell(4, trainable_ratio_on=False, input_size=3)
    loaded, assigned = (tt.cells.PhasedLSTMCell(4, trainable_ratio_on=False) for _ in range(2))
    loaded.load_state_dict(cell.state_dict())
    assigned.load_state_dict(cell.state_dict(), assign=True)
    for one in (cell, loaded, assigned, copy.deepcopy(loaded), tt.cells.PhasedLSTMCell(4, trainable_ratio_on=False)):
        one.build(3)
        assert [name for name, weight in one.named_parameters() if not weight.requires_grad] == ["ratio_on"]


GRID: dict[str, Any] = {"feature_size": 2, "frequency_skip": 1, "num_frequency_blocks": [3]}


@pytest.mark.parametrize("name", ["start_freqindex_list", "end_freqindex_list"])
def test_a_feature_where_a_list_is_meant(name: str) -> None:
    lists = {"start_freqindex_list": [0], "end_freqindex_list": [4], name: 0}
    with pytest.raises(TypeError, match=f"`{name}` must be a list: got 0, expected a list with one feature"):
        tt.cells.GridLSTMCell(3, **GRID, **lists)


def test_a_memory_that_is_only_read() -> None:
    with pytest.raises(TypeError, match="`dtype` must be a torch dtype: got 'float32'"):
        tt.cells.NTMCell(tt.GRUCell(3), 5, 3, 1, 1, output_dim=2, dtype="float32")
    cell = tt.cells.NTMCell(tt.LSTMCell(4), 5, 3, 1, 0, output_dim=2)
    x = torch.randn(2, 3, 4)
    outputs, state = tt.dynamic_rnn(cell, x, dtype=torch.float32)
    assert outputs.shape == (2, 3, 2)
    assert torch.equal(state.M, cell.memory.expand(2, 5, 3))
    with tt.backend("reference"):
        check_close("outputs", tt.dynamic_rnn(cell, x, dtype=torch.float32)[0], outputs)
    outputs.square().sum().backward()
    assert all(weight.grad is not None for weight in cell.parameters())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: tt.cells.ZoneoutWrapper(tt.GRUCell(3), 1.0),
            "`rate` is no probability: got 1.0, expected 0 <= rate < 1",
        ),
        (
            lambda: tt.cells.RecurrentDropoutLSTMCell(3, 0.0),
            "`keep_prob` is not a probability to keep a value: got 0.0",
        ),
        (lambda: tt.cells.SLSTMCell(5, num_heads=2), "`num_units` is no multiple of `num_heads`: got 5"),
        (tt.cells.GRUBlockCell, "a GRU has one size: got num_units=None, cell_size=None"),
        (lambda: tt.cells.ConvLSTMCell(2, (3, 1), 1, (3, 3)), "`input_shape` does not fit `conv_ndims`"),
        (
            lambda: tt.cells.ConvLSTMCell(4, (3, 1), 1, (3, 3)),
            "`conv_ndims` is out of range: got 4, expected 1, 2 or 3",
        ),
        (lambda: tt.cells.PhasedLSTMCell(3, period_init_min=5, period_init_max=2), "the first periods are no range"),
        (lambda: tt.cells.NTMCell(tt.GRUCell(3), 2, 2, 1, 1, output_dim=1), "heads would move further than around"),
        (lambda: tt.cells.GridLSTMCell(3, feature_size=2, frequency_skip=1), "`num_frequency_blocks` must be given"),
        (
            lambda: tt.cells.GridLSTMCell(3, feature_size=2, frequency_skip=1, num_frequency_blocks=[1, 1]),
            "the frequency blocks do not fit: got 2 blocks, 1 starts, 1 ends",
        ),
        (
            lambda: tt.cells.GridLSTMCell(3, **GRID, start_freqindex_list=[-1], end_freqindex_list=[4]),
            "`start_freqindex_list` is too small: got -1, expected an int of at least 0",
        ),
        (
            lambda: tt.cells.BidirectionalGridLSTMCell(3, **GRID, backward_slice_offset=math.inf),
            "`backward_slice_offset` is out of range: got inf, expected a finite number",
        ),
        (
            lambda: tt.cells.PhasedLSTMCell(3, period_init_max=math.inf, input_size=2),
            "the first periods are no range: got 1.0 to inf, expected 0 < min < max < inf",
        ),
        (
            lambda: tt.cells.NTMCell(tt.GRUCell(3), 5, 3, 1, 1, output_dim=2, dtype=torch.int32),
            "RNN cell only supports floating point parameters: got torch.int32",
        ),
        (
            lambda: tt.cells.SLSTMCell(4).zero_state(2, torch.int64),
            "RNN cell only supports floating point states: got torch.int64",
        ),
        (
            lambda: tt.cells.NTMCell(tt.GRUCell(3), 5, 3, 1, 1, output_dim=2).zero_state(2, torch.int64),
            "RNN cell only supports floating point states: got torch.int64",
        ),
        (
            lambda: tt.cells.TimeFreqLSTMCell(3, feature_size=9, input_size=4),
            "no slice fits into the features: got 4 features, expected at least 9",
        ),
        (
            lambda: tt.cells.IntersectionRNNCell(3, num_in_proj=2),
            "`num_in_proj` of an IntersectionRNNCell is `num_units`",
        ),
    ],
)
def test_mistakes_in_constructors(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


def test_mistakes_in_a_step() -> None:
    with pytest.raises(
        ValueError, match="a HighwayWrapper needs inputs of the width of the outputs: got 4, expected 3"
    ):
        tt.cells.HighwayWrapper(tt.GRUCell(3))(torch.ones(2, 4), torch.ones(2, 3))
    with pytest.raises(TypeError, match="PhasedLSTMCell takes times and features: got a tensor"):
        tt.cells.PhasedLSTMCell(3)(torch.ones(2, 4), (torch.ones(2, 3), torch.ones(2, 3)))
    grid = tt.cells.GridLSTMCell(3, feature_size=2, frequency_skip=1, num_frequency_blocks=[3])
    with pytest.raises(ValueError, match="`num_frequency_blocks` does not fit the inputs: got 5 slices"):
        grid(torch.ones(2, 6), grid.zero_state(2, torch.float32))
    conv = tt.cells.Conv1DLSTMCell((4, 1), 2, (3,))
    with pytest.raises(ValueError, match=r"`inputs` has the wrong shape: got \(2, 5, 1\), expected \[B, 4, 1\]"):
        conv(torch.ones(2, 5, 1), conv.zero_state(2, torch.float32))
    with pytest.raises(ValueError, match=r"`state.c` has the wrong shape: got \(2, 4\), expected \[2, 3\]"):
        tt.cells.NASCell(3)(torch.ones(2, 4), (torch.ones(2, 4), torch.ones(2, 3)))
