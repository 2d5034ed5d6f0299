"""The numbers that TensorFlow's own tests of its contrib cells state, for weights that are all one constant.

From `contrib/rnn/python/kernel_tests/rnn_cell_test.py`. Where its numbers depend on TensorFlow's random numbers (phases
of a phased LSTM, diagonals of independent units, a Turing machine), the equations are worked out once more, in numpy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import throughtime as tt

pytestmark = pytest.mark.covers("tf-tests")

cells = tt.cells
ROWS = torch.tensor([[1.0] * 4, [2.0] * 4, [3.0] * 4])
RISING = ROWS + torch.tensor([0.0, 0.1, 0.2, 0.3])
# Whatever has an initialiser of its own in TensorFlow: biases, and the scales of norms.
KEEP_FIRST_VALUES = {"bias", "B", "biases", "gamma", "beta"}


def filled(cell: Any, inputs: Any, state: Any, value: float = 0.5, *, keep: set[str] = KEEP_FIRST_VALUES) -> Any:
    """One step of a cell with constant weights."""
    cell(inputs, state)
    with torch.no_grad():
        for name, weight in cell.named_parameters():
            last = name.rpartition(".")[2]
            if last not in keep and not last.startswith("B_"):
                weight.fill_(value)
    return cell(inputs, state)


def doubled(*rows: list[float]) -> Tensor:
    """Rows in which every number stands for two equal units."""
    return torch.tensor(rows).repeat_interleave(2, 1)


def tenths(*sizes: int) -> Any:
    return tuple(torch.full((3, size), 0.1) for size in sizes) if len(sizes) > 1 else torch.full((3, sizes[0]), 0.1)


def check(found: Any, expected: Tensor) -> None:
    leaves = pytree.tree_leaves(found)
    torch.testing.assert_close(torch.cat([leaf.flatten(1) for leaf in leaves], 1), expected, rtol=1e-5, atol=2e-6)


def test_coupled_input_forget_gate_lstm() -> None:
    cell = cells.CoupledInputForgetGateLSTMCell(2, forget_bias=1.0, state_is_tuple=False)
    output, state = filled(cell, ROWS, tenths(4))
    check(output, doubled([0.121753], [0.103349], [0.100178]))
    check(state, doubled([0.137523, 0.121753], [0.105450, 0.103349], [0.100742, 0.100178]))


def test_nas() -> None:
    output, state = filled(cells.NASCell(6), ROWS, tenths(6, 6))
    check(output, torch.tensor([[0.576751], [0.618936], [0.627393]]).expand(3, 6))
    check(state.c, torch.tensor([[0.71579772], [0.78041625], [0.79457647]]).expand(3, 6))
    assert state.h is output


def test_nas_with_projection() -> None:
    output, state = filled(cells.NASCell(6, num_proj=5), ROWS, tenths(6, 5))
    check(output, torch.tensor([[1.697418], [1.840037], [1.873985]]).expand(3, 5))
    check(state.c, torch.tensor([[0.69855207], [0.77073824], [0.78973997]]).expand(3, 6))


def test_ugrnn() -> None:
    output, state = filled(cells.UGRNNCell(2), ROWS, tenths(2))
    check(output, doubled([0.13752282], [0.10545051], [0.10074195]))
    assert state is output


def test_intersection_rnn() -> None:
    output, state = filled(cells.IntersectionRNNCell(2, num_in_proj=2), ROWS, tenths(2))
    check(output, doubled([2.00431061], [4.00060606], [6.00008249]))
    check(state, doubled([0.13752282], [0.10545051], [0.10074195]))


def test_intersection_rnn_wants_inputs_as_wide_as_outputs() -> None:
    with pytest.raises(ValueError, match=r"Must have input size == output size for Intersection RNN.*num_in_proj"):
        cells.IntersectionRNNCell(2)(ROWS, tenths(2))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (cells.SRUCell, {2: 0.509682, 3: 0.55255556}),
        (cells.CFNCell, {2: 0.17188203, 3: 0.15535763}),
        (cells.MinimalRNNCell, {2: 0.18899589, 3: 0.19554167}),
    ],
)
def test_small_cells(make: Any, expected: dict[int, float]) -> None:
    for width, value in expected.items():
        output, _ = filled(make(2), torch.ones(1, width), torch.full((1, 2), 0.1))
        check(output, torch.full((1, 2), value))


GRID = {"feature_size": 2, "frequency_skip": 1, "num_frequency_blocks": [3], "forget_bias": 1.0}


@pytest.mark.parametrize("as_tuple", [False, True])
def test_grid_lstm_with_coupled_gates(as_tuple: bool) -> None:
    cell = cells.GridLSTMCell(2, couple_input_forget_gates=True, state_is_tuple=as_tuple, **GRID)
    start = cell.state_tuple_type(*tenths(*[2] * 6)) if as_tuple else tenths(12)
    output, state = filled(cell, ROWS, start)
    check(
        output,
        doubled(
            [0.416383, 0.403238, 0.524020, 0.565425, 0.557865, 0.609699],
            [0.627331, 0.622393, 0.688342, 0.708078, 0.694245, 0.715171],
            [0.711050, 0.709197, 0.736533, 0.744264, 0.737390, 0.745250],
        ),
    )
    check(
        state,
        doubled(
            [0.625556, 0.416383, 0.759134, 0.524020, 0.798795, 0.557865],
            [0.875488, 0.627331, 0.936432, 0.688342, 0.941961, 0.694245],
            [0.957327, 0.711050, 0.979522, 0.736533, 0.980245, 0.737390],
        ),
    )


UPWARDS = (
    [0.464130, 0.419165, 0.593283, 0.738350, 0.661638, 0.866774],
    [0.669636, 0.628966, 0.736057, 0.895927, 0.755559, 0.954359],
    [0.751109, 0.711716, 0.778357, 0.940779, 0.784530, 0.980604],
)
DOWNWARDS = {
    0: (
        [0.520789, 0.476968, 0.604341, 0.760207, 0.635773, 0.850218],
        [0.692621, 0.652363, 0.737517, 0.899558, 0.745984, 0.946840],
        [0.759940, 0.720652, 0.778552, 0.941606, 0.781035, 0.977731],
    ),
    1: (
        [0.322645, 0.276068, 0.584654, 0.690292, 0.640446, 0.840071],
        [0.493625, 0.449236, 0.730828, 0.865996, 0.749429, 0.944958],
        [0.608587, 0.566683, 0.777345, 0.925820, 0.782597, 0.976858],
    ),
}
MEMORIES = {
    0: (
        [0.710660, 0.877293, 0.958505, 0.785405, 0.890836, 0.928512],
        [0.967579, 1.038811, 1.058201, 0.993088, 1.040288, 1.048773],
        [1.053842, 1.079919, 1.085620, 1.062455, 1.080101, 1.082402],
    ),
    1: (
        [0.710660, 0.877293, 0.958505, 0.516575, 0.866628, 0.934002],
        [0.967579, 1.038811, 1.058201, 0.749836, 1.033488, 1.052186],
        [1.053842, 1.079919, 1.085620, 0.895999, 1.078978, 1.083843],
    ),
}


@pytest.mark.parametrize("offset", [0, 1])
def test_bidirectional_grid_lstm(offset: int) -> None:
    cell = cells.BidirectionalGridLSTMCell(2, share_time_frequency_weights=True, backward_slice_offset=offset, **GRID)
    output, state = filled(cell, RISING, cell.state_tuple_type(*tenths(*[2] * 12)))
    check(output, doubled(*([*up, *down] for up, down in zip(UPWARDS, DOWNWARDS[offset], strict=True))))
    check(list(state)[::2], doubled(*MEMORIES[offset]))
    # What goes out along time is what is remembered.
    check(list(state)[1::2], torch.cat(output.split(2, 1)[::2], 1))


@pytest.mark.parametrize(("ndims", "weight"), [(1, 1 / 2), (2, 1 / 4), (3, 1 / 8)])
def test_convolutional_lstms(ndims: int, weight: float) -> None:
    make = (cells.Conv1DLSTMCell, cells.Conv2DLSTMCell, cells.Conv3DLSTMCell)[ndims - 1]
    cell = make(input_shape=[2] * ndims + [1], kernel_shape=[3] * ndims, output_channels=1)
    pictures = torch.tensor([1.0, 2.0]).view(2, *[1] * (ndims + 1)).expand(2, *[2] * ndims, 1)
    output, state = filled(cell, pictures, (pictures, torch.zeros_like(pictures)), weight)
    check(state.c, torch.tensor([[1.4375670191], [2.7542609292]]).expand(2, 2**ndims))
    check(output, torch.tensor([[0.6529865603], [0.8736877431]]).expand(2, 2**ndims))
    assert state.h is output


PAIR = (
    (torch.tensor([[0.0, 0.1]]), torch.tensor([[0.2, 0.3]])),
    (torch.tensor([[0.4, 0.5]]), torch.tensor([[0.6, 0.7]])),
)


@pytest.mark.parametrize(
    ("norm", "peepholes", "c", "h"),
    [
        (False, False, [0.65937078, 0.74983585], [0.44923624, 0.49362513]),
        (False, True, [0.65937084, 0.7574988], [0.4792085, 0.53470564]),
        (True, False, [0.50125383, 0.58805949], [0.32770363, 0.37397948]),
        (True, True, [0.50125383, 0.59587258], [0.35041603, 0.40873795]),
    ],
)
def test_weight_norm_lstm(norm: bool, peepholes: bool, c: list[float], h: list[float]) -> None:
    cell = cells.WeightNormLSTMCell(2, norm=norm, use_peepholes=peepholes)
    output, state = filled(cell, torch.ones(1, 2), PAIR[0])
    check(state.c, torch.tensor([c]))
    check(output, torch.tensor([h]))


@pytest.mark.parametrize("make", [cells.LayerNormBasicLSTMCell, lambda n: cells.LayerNormLSTMCell(n, layer_norm=True)])
def test_layer_norm_lstms(make: Any) -> None:
    output, states = filled(tt.MultiRNNCell([make(2), make(2)]), torch.ones(1, 2), PAIR)
    expected = torch.tensor([[-1.0, 1.0, -0.38079708, 0.38079708]])
    for state in states:
        check(state, expected)
    check(output, expected[:, 2:])
    output, state = filled(make(2), torch.ones(1, 3), PAIR[0])
    check(state, expected)


def test_layer_norm_lstm_without_norm() -> None:
    cell = tt.MultiRNNCell([cells.LayerNormBasicLSTMCell(2, layer_norm=False) for _ in range(2)])
    _, (first, second) = filled(cell, torch.ones(1, 2), PAIR, keep=set())
    check(first, torch.tensor([[0.8020075, 0.89599884, 0.56668288, 0.60858738]]))
    check(second, torch.tensor([[1.17500675, 1.26892781, 0.70230919, 0.72581059]]))
    cell = cells.LayerNormBasicLSTMCell(2, layer_norm=False)
    _, state = filled(cell, torch.ones(1, 3), PAIR[0], keep=set())
    check(state, torch.tensor([[0.88477188, 0.98103917, 0.64121795, 0.68166804]]))


def test_recurrent_dropout_is_of_what_is_written() -> None:
    """Each unit has one of two values: with what was to be written, doubled, or without."""
    cell, ones = cells.LayerNormBasicLSTMCell(5, layer_norm=False, dropout_keep_prob=0.5), torch.ones(40, 5)
    _, state = filled(cell, ones, (ones, ones), 1.0, keep=set())
    values = {2.9998924946: 0.995008519604, 0.999983298578: 0.761552567265}
    found = {c: (state.c - c).abs() < 1e-4 for c in values}
    assert sum(where.sum() for where in found.values()) == 200
    for h, where in zip(values.values(), found.values(), strict=True):
        assert 70 < where.sum() < 130
        torch.testing.assert_close(state.h[where], torch.full_like(state.h[where], h), rtol=0, atol=1e-4)
    assert len(cell.eval()(ones, (ones, ones))[1].c.unique()) == 1


@pytest.mark.parametrize("width", [4, 6])
@pytest.mark.parametrize("groups", [1, 2])
def test_groups_are_lstms_of_their_own(groups: int, width: int) -> None:
    cell, one = cells.GLSTMCell(4, number_of_groups=groups), tt.LSTMCell(4 // groups)
    output, _ = filled(
        cell, torch.ones(2, width), cell.zero_state(2, torch.float32), keep={f"bias_{gate}" for gate in "ijfo"}
    )
    inputs = torch.ones(2, width // groups)
    expected, _ = filled(one, inputs, one.zero_state(2, torch.float32))
    torch.testing.assert_close(output, torch.cat([expected] * groups, 1))


def test_groups_divide_the_inputs() -> None:
    cell = cells.GLSTMCell(4, number_of_groups=2)
    with pytest.raises(ValueError, match=r"input size \(3\) must be divisible by number_of_groups \(2\)"):
        cell(torch.ones(2, 3), cell.zero_state(2, torch.float32))
    with pytest.raises(ValueError, match=r"num_units \(5\) must be divisible by number_of_groups \(2\)"):
        cells.GLSTMCell(5, number_of_groups=2)


def test_highway_that_carries_nothing_is_the_cell() -> None:
    inputs, state = torch.ones(1, 3), torch.full((1, 3), 0.1)
    cell = cells.HighwayWrapper(tt.GRUCell(3), carry_bias_init=-100.0)
    found = filled(cell, inputs, state, keep={"bias", "carry_b"})
    torch.testing.assert_close(found, cell.cell(inputs, state))


def test_time_frequency_and_grid_sizes() -> None:
    cell = cells.TimeFreqLSTMCell(8, feature_size=2, frequency_skip=1, input_size=4)
    output, state = filled(cell, ROWS, tenths(48))
    assert (output.shape, state.shape) == ((3, 24), (3, 48))
    blocks = {"num_frequency_blocks": [1, 1], "start_freqindex_list": [0, 2], "end_freqindex_list": [2, 4]}
    cell = cells.GridLSTMCell(8, couple_input_forget_gates=True, **{**GRID, **blocks})
    output, state = filled(cell, ROWS, cell.state_tuple_type(*tenths(*[8] * 4)))
    assert output.shape == (3, 32)
    assert state._fields == ("state_f00_b00_c", "state_f00_b00_m", "state_f00_b01_c", "state_f00_b01_m")
    for row in (1, 2):
        assert (output[0] - output[row]).norm() > 1e-6


@pytest.mark.parametrize("as_tuple", [False, True])
def test_attention_wrapper(as_tuple: bool) -> None:
    """Zeros in give zeros out; different inputs give different outputs; both forms of state are one."""
    cell = cells.AttentionCellWrapper(tt.BasicLSTMCell(8, state_is_tuple=as_tuple), 16, state_is_tuple=as_tuple)
    zero = cell.zero_state(3, torch.float32)
    assert sum(leaf.shape[1] for leaf in pytree.tree_leaves(zero)) == 8 * 2 + 8 + 16 * 8
    output, state = cell(torch.zeros(3, 4), zero)
    assert output.shape == (3, 8)
    assert all(not leaf.any() for leaf in [output, *pytree.tree_leaves(state)])
    output, _ = cell(ROWS, pytree.tree_map(lambda leaf: leaf + 0.1, zero))
    assert len(output.unique(dim=0)) == 3


def test_attention_wrapper_failures() -> None:
    with pytest.raises(TypeError, match="`cell` is not an RNNCell"):
        cells.AttentionCellWrapper(None, 0)
    for length in (0, -1):
        with pytest.raises(ValueError, match=f"attn_length should be greater than zero, got {length}"):
            cells.AttentionCellWrapper(tt.BasicLSTMCell(8), length)
    with pytest.raises(ValueError, match="Cell returns tuple of states, but the flag state_is_tuple is not set"):
        cells.AttentionCellWrapper(tt.BasicLSTMCell(8), 4, state_is_tuple=False)


@pytest.mark.parametrize("make", [cells.IndRNNCell, cells.IndyGRUCell, cells.IndyLSTMCell])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_independent_cells_build_before_a_call(make: Any, dtype: torch.dtype) -> None:
    cell = make(3, dtype=dtype)
    cell.build((5, 7))
    output, _ = cell(torch.zeros(5, 7, dtype=dtype), cell.get_initial_state(batch_size=5, dtype=dtype))
    assert (output.shape, output.dtype) == ((5, 3), dtype)
    assert cell.bias.dtype == dtype if hasattr(cell, "bias") else cell.gates.bias.dtype == dtype


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_bias_takes_the_dtype_of_the_cell_or_of_its_first_inputs(dtype: torch.dtype) -> None:
    told, asked = cells.SRUCell(10, dtype=dtype), cells.SRUCell(10)
    told.build((2, 5))
    asked(torch.rand(2, 5, dtype=dtype), torch.rand(2, 10, dtype=dtype))
    assert told.bias.dtype == asked.bias.dtype == dtype


def test_layer_norm_lstm_with_projection() -> None:
    """Rows that are alike are treated alike."""
    cell = cells.LayerNormLSTMCell(2, num_proj=3, forget_bias=1.0, layer_norm=True, norm_gain=1.0, norm_shift=0.0)
    start = (torch.full((4, 2), 0.1), torch.full((4, 3), 0.1))
    output, state = filled(cell, torch.ones(4, 4), start)
    assert (output.shape, state.c.shape, state.h.shape) == ((4, 3), (4, 2), (4, 3))
    assert len(output.unique(dim=0)) == len(state.c.unique(dim=0)) == 1


@pytest.mark.parametrize("make", [cells.CFNCell, cells.MinimalRNNCell])
def test_small_cells_learn(make: Any) -> None:
    """Through dynamic_rnn, and a step of gradient descent makes the loss smaller."""
    cell, inputs, classes = make(5, input_size=10), torch.randn(100, 4, 10), torch.randint(5, (100,))
    optimizer = torch.optim.SGD(cell.parameters(), 0.1)
    losses = []
    for _ in range(2):
        outputs, state = tt.dynamic_rnn(cell, inputs, dtype=torch.float32)
        assert (outputs.shape, state.shape) == ((100, 4, 5), (100, 5))
        losses.append(torch.nn.functional.cross_entropy(state, classes))
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
    assert losses[1] < losses[0]


def test_compiled_wrapper_changes_nothing() -> None:
    """Two layers, wrapped and not: outputs, states and gradients."""
    plain = tt.MultiRNNCell([tt.LSTMCell(32), tt.LSTMCell(32)], input_size=12)
    wrapped = tt.MultiRNNCell([cells.CompiledWrapper(layer) for layer in plain.cells])
    x = torch.randn(20, 16, 12)
    found = []
    for cell in (plain, wrapped):
        results = tt.dynamic_rnn(cell, x, dtype=torch.float32, time_major=True)
        total = sum(leaf.sin().sum() for leaf in pytree.tree_leaves(results))
        found.append((results, torch.autograd.grad(total, [*plain.parameters()])))
    torch.testing.assert_close(found[0], found[1])


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def numpy_weights(cell: Any) -> dict[str, Any]:
    return {name: weight.detach().numpy() for name, weight in cell.named_parameters()}


def test_independent_units() -> None:
    x, h, c = torch.randn(3, 4).double(), torch.randn(3, 2).double(), torch.randn(3, 2).double()
    cell = cells.IndRNNCell(2, input_size=4, dtype=torch.float64)
    w = numpy_weights(cell)
    assert list(w) == ["kernel_w", "kernel_u", "bias"]
    expected = np.tanh(x.numpy() @ w["kernel_w"] + w["kernel_u"] * h.numpy())
    np.testing.assert_allclose(cell(x, h)[0].detach(), expected)
    cell = cells.IndyGRUCell(2, input_size=4, dtype=torch.float64)
    w = numpy_weights(cell)
    r, u = np.split(sigmoid(1 + x.numpy() @ w["gates.kernel_w"] + np.tile(h.numpy(), 2) * w["gates.kernel_u"]), 2, 1)
    candidate = np.tanh(x.numpy() @ w["candidate.kernel"] + r * h.numpy() * w["candidate.kernel_u"])
    np.testing.assert_allclose(cell(x, h)[0].detach(), u * h.numpy() + (1 - u) * candidate)
    cell = cells.IndyLSTMCell(2, input_size=4, dtype=torch.float64)
    w = numpy_weights(cell)
    i, j, f, o = np.split(x.numpy() @ w["kernel_w"] + np.tile(h.numpy(), 4) * w["kernel_u"], 4, 1)
    memory = c.numpy() * sigmoid(f + 1) + sigmoid(i) * np.tanh(j)
    np.testing.assert_allclose(cell(x, (c, h))[0].detach(), sigmoid(o) * np.tanh(memory))


def test_phased_lstm() -> None:
    """Times in float64, features in float32, and a gate that opens, closes and leaks."""
    cell, x = cells.PhasedLSTMCell(200), torch.ones(3, 4)
    times = torch.tensor([[1.0], [2.0], [3.0]], dtype=torch.float64)
    output, state = cell((times, x), cell.zero_state(3, torch.float32))
    assert output is state.h
    assert output.dtype == torch.float32
    w = numpy_weights(cell)
    assert (w["period"] >= 1).all()
    assert (w["period"] <= 1000).all()
    assert ((w["phase"] >= 0) & (w["phase"] <= w["period"])).all()
    cycle = np.mod(times.numpy() - w["phase"].astype(np.float64), w["period"].astype(np.float64)) / w["period"]
    k = np.where(cycle < 0.05, 2 * cycle / 0.1, np.where(cycle < 0.1, 2 - 2 * cycle / 0.1, 0.001 * cycle))
    assert len({*np.digitize(cycle, [0.05, 0.1]).flatten()}) == 3
    joined = np.hstack([np.ones((3, 4)), np.zeros((3, 200))])
    i, _ = np.split(sigmoid(joined @ w["mask_gates.kernel"]), 2, 1)
    memory = i * np.tanh(joined @ w["new_input.kernel"])
    np.testing.assert_allclose(state.c.detach(), k * memory, atol=1e-5)
    hidden = np.tanh(memory) * sigmoid(joined @ w["output_gate.kernel"])
    np.testing.assert_allclose(state.h.detach(), k * hidden, atol=1e-5)


def test_turing_machine_reads_and_writes() -> None:
    """A memory that is blank is read as blank; addresses are shares; what is written is where the head looks."""
    cell = cells.NTMCell(tt.LSTMCell(4), 5, 4, read_head_num=1, write_head_num=1, output_dim=4)
    start = cell.zero_state(4, torch.float32)
    output, state = cell(torch.rand(4, 4), start)
    assert output.shape == (4, 4)
    torch.testing.assert_close(state.read_vector_list[0], torch.full((4, 4), 1e-6))
    for place in state.w_list:
        torch.testing.assert_close(place.sum(1), torch.ones(4))
    # Erasing a blank memory does next to nothing: what is there now is one vector, as strong as each row's address.
    written = state.M / state.w_list[1].unsqueeze(2)
    torch.testing.assert_close(written, written[:, :1].expand_as(written), rtol=1e-3, atol=1e-4)
    assert set(numpy_weights(cell)) >= {"initial_read_vector_0", "initial_address_weights_1", "memory", "output_kernel"}


def test_turing_machine_shifts_around_the_memory() -> None:
    """A head that moves by one row goes around, and comes back the other way."""
    from throughtime.cells._ntm import _shifted

    place = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    stay, ahead, back = (torch.eye(3)[which : which + 1] for which in (0, 1, 2))
    assert _shifted(place, stay, 1).argmax() == 0
    assert _shifted(place, ahead, 1).argmax() == 1
    assert _shifted(place, back, 1).argmax() == 3
