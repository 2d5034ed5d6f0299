"""`torch.compile(fullgraph=True)` of models that unroll: one node for any number of steps, and the same results."""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter
from torch.utils.checkpoint import checkpoint

import throughtime as tt
from compare import check_close, check_same, measure
from descriptors import BY_NAME, Case, random_inputs, settled
from unrolls import dynamic, transposed
from user_cells import LayerNormLSTM, MinimalGatedUnit

pytestmark = [
    pytest.mark.covers("compiler"),
    # torch itself uses what it has deprecated.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]

F32, F64 = torch.float32, torch.float64
B, T = 4, 5
LENGTHS = {"none": None, "list": [3, 0, T, 1], "tensor": torch.tensor([3, 0, T, 1]), "zero": [0] * B}
CELLS: dict[str, Callable[[], Any]] = {
    "LSTM": lambda: tt.LSTMCell(4, True, num_proj=3),
    "stack": lambda: tt.MultiRNNCell(
        [tt.ResidualWrapper(tt.GRUCell(3)), tt.OutputProjectionWrapper(tt.LSTMCell(4), 2)]
    ),
    "user's": lambda: LayerNormLSTM(4, modules=True),
    "linear": lambda: MinimalGatedUnit(4),
}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """torch.compile remembers what it has seen, and gives up on what changes too often."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def case_of(make: Callable[[], Any]) -> Case:
    cell = settled(make(), random_inputs(3, 1, 1, F64), F64)
    state = torch.utils._pytree.tree_map(torch.randn_like, cell.zero_state(B, F64))
    return Case(cell, random_inputs(3, B, T, F64), state, F64)


def check_compiled(case: Case, unroll: Callable[..., Any]) -> None:
    """The same values and gradients as without torch.compile."""
    compiled = torch.compile(unroll, backend="aot_eager", fullgraph=True)
    check_same(*(measure(run, case.cell, case.inputs, case.state) for run in (unroll, compiled)))


@pytest.mark.parametrize(
    ("name", "lengths"),
    [*(("LSTM", kind) for kind in LENGTHS), ("stack", "list"), ("user's", "list"), ("linear", "none")],
)
def test_cells_and_lengths(name: str, lengths: str) -> None:
    case = case_of(CELLS[name])
    check_compiled(case, lambda cell, inputs, state: tt.dynamic_rnn(cell, inputs, LENGTHS[lengths], state, F64))


UNROLLS: dict[str, Callable[..., Any]] = {
    "from zeros": lambda cell, x, _: tt.dynamic_rnn(cell, x, LENGTHS["list"], dtype=F64),
    "time-major": lambda cell, x, s: tt.dynamic_rnn(cell, x.transpose(0, 1), [3, 0, T, 1], s, F64, time_major=True),
    "all states": lambda cell, x, s: tt.dynamic_rnn(cell, x, LENGTHS["list"], s, F64, all_states=True),
    "all states, dense": lambda cell, x, s: tt.dynamic_rnn(cell, x, None, s, F64, all_states=True),
    "blocks": lambda cell, x, s: tt.dynamic_rnn(cell, x, LENGTHS["list"], s, F64, parallel_iterations=2),
    "both": lambda cell, x, s: tt.bidirectional_dynamic_rnn(cell, cell, x, LENGTHS["list"], s, s, F64),
    "both, dense": lambda cell, x, s: tt.bidirectional_dynamic_rnn(cell, cell, x, None, s, s, F64),
    "module": lambda cell, x, s: tt.RNN(cell, dtype=F64)(x, LENGTHS["list"], s),
    "in a larger function": lambda cell, x, s: torch.sin(tt.dynamic_rnn(cell, 2 * x, None, s, F64)[0]).relu(),
    "twice": lambda cell, x, s: [tt.dynamic_rnn(cell, scale * x, None, s, F64) for scale in (1, 2)],
    "the final state only": lambda cell, x, s: tt.dynamic_rnn(cell, x, LENGTHS["list"], s, F64)[1],
}


@pytest.mark.parametrize("name", UNROLLS)
def test_every_way(name: str) -> None:
    check_compiled(case_of(CELLS["LSTM"]), UNROLLS[name])


@pytest.mark.parametrize("name", ["nests", "dict state", "Embedding", "Multi flat"])
def test_nests_and_odd_cells(name: str) -> None:
    case = BY_NAME[name].case(B, T)
    check_compiled(case, lambda cell, inputs, state: tt.dynamic_rnn(cell, inputs, [3, 0, T, 1], state, F64))


@pytest.mark.parametrize("name", ["duck", "integer counters"])
def test_cells_that_are_taken_step_by_step(name: str) -> None:
    """No `tt.RNNCell`, or a state without rows: dense sequences only, since lengths are data while torch looks on."""
    case = BY_NAME[name].case(B, T)
    check_compiled(case, lambda cell, inputs, state: tt.dynamic_rnn(cell, inputs, None, state, F64))
    check_compiled(case, lambda cell, inputs, _: tt.dynamic_rnn(cell, inputs, None, None, F64))
    ragged = lambda inputs: tt.dynamic_rnn(case.cell, inputs, torch.tensor([3, 0, T, 1]), case.state, F64)  # noqa: E731
    with pytest.raises(torch._dynamo.exc.TorchDynamoException):
        torch.compile(ragged, backend="aot_eager", fullgraph=True)(case.inputs)


class Model(nn.Module):
    """An encoder with something below and something above."""

    def __init__(self, cell: Any) -> None:
        super().__init__()
        self.below, self.rnn, self.above = nn.Linear(2, 3), tt.RNN(cell), nn.Linear(4, 1)

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        outputs, _ = self.rnn(self.below(inputs), lengths)
        return self.above(outputs)


def test_a_model_trains_as_it_does_without() -> None:
    losses = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = Model(tt.GRUCell(4, input_size=3))
        run = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model
        optimiser = torch.optim.SGD(model.parameters(), 0.1)
        losses.append([])
        for index in range(4):
            inputs = torch.randn(3, 6, 2, generator=torch.Generator().manual_seed(index))
            loss = run(inputs, torch.tensor([6, 2, index])).square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses[-1].append(loss.item())
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    assert losses[0][-1] != losses[0][0]


def graphs_of(unroll: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What torch.compile sees of a call."""
    seen: list[Any] = []

    def remember(graph: Any, _inputs: Any) -> Any:
        seen.append(graph)
        return graph.forward

    torch.compile(unroll, backend=remember, fullgraph=True)(*arguments)
    return seen


@pytest.mark.parametrize("lengths", [None, torch.tensor([3, 1])], ids=["dense", "ragged"])
def test_one_node_whatever_the_number_of_steps(lengths: Any) -> None:
    cell = tt.LSTMCell(4, input_size=3)
    sizes = []
    for time in (3, 3000):
        torch._dynamo.reset()
        graphs = graphs_of(
            lambda inputs: tt.dynamic_rnn(cell, inputs, lengths, dtype=torch.float32), torch.randn(2, time, 3)
        )
        nodes = [node for graph in graphs for node in graph.graph.nodes]
        assert sum("throughtime" in str(node.target) for node in nodes) == 1
        sizes.append(len(nodes))
    assert sizes[0] == sizes[1] < 60


def test_other_lengths_and_weights_need_no_other_graph() -> None:
    cell, seen = tt.GRUCell(4, input_size=3), []

    def count(graph: Any, _inputs: Any) -> Any:
        seen.append(graph)
        return graph.forward

    run = torch.compile(lambda x, n: tt.dynamic_rnn(cell, x, n, dtype=torch.float32)[0], backend=count, fullgraph=True)
    inputs = torch.randn(3, 6, 3)
    for lengths in ([6, 2, 1], [1, 1, 1], [0, 6, 3]):
        with torch.no_grad():
            cell.gates.kernel.mul_(0.7)
        want = tt.dynamic_rnn(cell, inputs, lengths, dtype=torch.float32)[0]
        check_close("outputs", want, run(inputs, torch.tensor(lengths)))
    assert len(seen) == 1


def test_dropout_is_drawn_at_every_call() -> None:
    cell = tt.DropoutWrapper(tt.GRUCell(64, input_size=3), output_keep_prob=0.5)
    run = torch.compile(lambda x: tt.dynamic_rnn(cell, x, dtype=torch.float32)[0], backend="aot_eager", fullgraph=True)
    first, second = (run(torch.ones(2, 8, 3)) == 0 for _ in range(2))
    assert 0.4 < first.float().mean() < 0.6
    assert not torch.equal(first, second)


@pytest.mark.parametrize("lengths", [None, [8, 3]], ids=["dense", "ragged"])
def test_inside_of_torchs_checkpoint(lengths: list[int] | None) -> None:
    """What is computed again draws the same random numbers again."""
    cell = tt.DropoutWrapper(tt.GRUCell(8, input_size=3), output_keep_prob=0.5)
    given = None if lengths is None else torch.tensor(lengths)

    def unroll(x: Tensor) -> Tensor:
        return tt.dynamic_rnn(cell, x, given, dtype=torch.float32)[0]

    def loss(x: Tensor, again: Any) -> Tensor:
        return again(x).sin().sum()

    x, found = torch.ones(2, 8, 3, requires_grad=True), []
    for way in (unroll, lambda x: checkpoint(unroll, x, use_reentrant=False)):
        run = torch.compile(functools.partial(loss, again=way), backend="aot_eager", fullgraph=True)
        torch.manual_seed(0)
        found.append([one.detach() for one in (run(x), *torch.autograd.grad(run(x), [x, *cell.parameters()]))][1:])
    check_close("computed again", *found)


def test_without_gradients() -> None:
    case = case_of(CELLS["LSTM"])
    run = torch.compile(lambda x: dynamic(case.cell, x, None, case.state, F64), backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        check_close("results", dynamic(case.cell, case.inputs, None, case.state, F64), run(case.inputs))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("where", ["inside", "around"])
def test_autocast_is_obeyed(backend: str, where: str) -> None:
    cell, inputs = tt.LSTMCell(5, input_size=3), torch.randn(B, T, 3)

    def unroll(inputs: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=where == "inside" or torch.is_autocast_enabled("cpu")):
            return tt.dynamic_rnn(cell, inputs, LENGTHS["list"], dtype=torch.float32)[0]

    results = []
    for run in (torch.compile(unroll, backend=backend, fullgraph=True), unroll):
        with torch.autocast("cpu", torch.bfloat16, enabled=where == "around"):
            outputs = run(inputs)
        results.append([outputs, *torch.autograd.grad(outputs.square().sum(), list(cell.parameters()))])
    check_close("with torch.compile and without", *results[::-1])
    assert not torch.equal(results[0][0], tt.dynamic_rnn(cell, inputs, LENGTHS["list"], dtype=torch.float32)[0])


KEYS: list[Any] = []


class NotesKeys(tt.RNNCell):
    """Says which kernels torch passes over while it is traced."""

    state_size = output_size = 3

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        # By a way that the compiler does not look at: it would refuse a step that changes something.
        keys = sys.modules[__name__].KEYS
        keys.append((torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()))
        state = torch.tanh(inputs + state)
        return state, state


def test_a_cell_is_traced_as_if_nobody_looked_on() -> None:
    """On a GPU, gradients are computed in threads that do not know of the operator: a cell cannot be traced in one."""
    cell, inputs = NotesKeys(), torch.randn(B, T, 3, requires_grad=True)
    run = torch.compile(lambda x: tt.dynamic_rnn(cell, x, dtype=torch.float32)[0], backend="aot_eager", fullgraph=True)
    KEYS.clear()
    run(inputs)
    outside = KEYS.copy()
    with tt.backend("reference"):
        tt.dynamic_rnn(cell, inputs, dtype=torch.float32)
    usual = KEYS[-1]
    snapshot = torch._C.DispatchKey.PythonTLSSnapshot
    assert outside
    assert all(not excluded.has(snapshot) and str(excluded) == str(usual[1]) for _, excluded in outside)


def test_a_cell_that_cannot_be_one_node_says_so() -> None:
    class Coupled(tt.RNNCell):
        state_size = output_size = 3

        def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
            return inputs - inputs.mean(0), state + inputs

    cell = Coupled()
    run = torch.compile(lambda x: tt.dynamic_rnn(cell, x, dtype=torch.float32), backend="aot_eager", fullgraph=True)
    with pytest.raises(Exception, match="rows of a batch are not independent"):
        run(torch.randn(2, 3, 3))


def test_inputs_in_another_layout() -> None:
    case = case_of(CELLS["linear"])
    turned = case._replace(inputs=transposed(case.inputs).contiguous())
    check_compiled(turned, lambda cell, x, s: tt.dynamic_rnn(cell, x.transpose(0, 1), [3, 0, T, 1], s, F64))


class ReadsByName(tt.RNNCell):
    """Takes its inputs apart by key: only the nest as it was given will do."""

    def __init__(self) -> None:
        super().__init__()
        self.state_size = self.output_size = 3

    def forward(self, inputs: dict[str, torch.Tensor], state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        state = torch.tanh(inputs["left"] - 2 * inputs["right"] + state)
        return state, state


def test_inputs_keep_their_structure() -> None:
    inputs = {"right": torch.randn(2, 4, 3), "left": torch.randn(2, 4, 3)}
    cell = ReadsByName()
    compiled = torch.compile(
        lambda x: tt.dynamic_rnn(cell, x, [4, 2], dtype=torch.float32)[0], fullgraph=True, backend="aot_eager"
    )
    expected, _ = tt.dynamic_rnn(cell, inputs, [4, 2], dtype=torch.float32)
    torch.testing.assert_close(compiled(inputs), expected)


def test_ids_outside_of_the_table_are_found() -> None:
    cell = tt.EmbeddingWrapper(tt.GRUCell(3, input_size=4), embedding_classes=5, embedding_size=4)
    cell.build((2, 1))
    compiled = torch.compile(
        lambda ids: tt.dynamic_rnn(cell, ids, dtype=torch.float32)[0], fullgraph=True, backend="aot_eager"
    )
    with pytest.raises(tt.InvalidArgumentError, match="outside of the table"):
        compiled(torch.full((2, 3, 1), 7))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"initial_state": torch.zeros(1, 4)}, ValueError, r"`initial_state` has the wrong shape: got \(1, 4\)"),
        ({"initial_state": torch.zeros(3, 4)}, ValueError, r"`initial_state` has the wrong shape: got \(3, 4\)"),
        ({}, ValueError, "`dtype` must be specified"),
        ({"dtype": "float32"}, TypeError, "got 'float32'"),
        ({"dtype": F32, "parallel_iterations": -1}, TypeError, "`parallel_iterations` must be a positive integer"),
        ({"dtype": F32, "scope": 5}, TypeError, "`scope`"),
        ({"dtype": F32, "time_major": "yes"}, TypeError, "`time_major` must be True or False"),
        ({"dtype": F32, "sequence_length": [1, 2]}, ValueError, "must be a vector of length batch_size"),
    ],
)
def test_mistakes_are_found_as_without(options: dict[str, Any], error: type[Exception], message: str) -> None:
    cell = tt.GRUCell(4, input_size=3)
    with pytest.raises(error, match=message):
        torch.compile(lambda x: tt.dynamic_rnn(cell, x, **options), backend="eager")(torch.ones(64, 5, 3))


def test_what_leaves_the_choice_to_the_engine() -> None:
    cell = tt.OutputProjectionWrapper(tt.GRUCell(4), 2)
    x = torch.randn(2, 5, 3)
    want = tt.dynamic_rnn(cell, x, dtype=F32)[0]
    got = torch.compile(lambda x: tt.dynamic_rnn(cell, x, dtype=F32, parallel_iterations=0)[0], backend="eager")(x)
    check_close("parallel_iterations=0", got, want)


def test_the_first_unroll_names_the_variables_and_compiles_once() -> None:
    one, other = tt.GRUCell(4, input_size=3), tt.GRUCell(4, input_size=3)
    counter = CompileCounter()

    def both(x: Tensor) -> Any:
        return tt.bidirectional_dynamic_rnn(one, other, x, dtype=F32, scope="mine")[0]

    compiled = torch.compile(both, fullgraph=True, backend=counter)
    for _ in range(3):
        compiled(torch.ones(2, 5, 3))
    assert (one.variable_scope, other.variable_scope) == ("mine/fw", "mine/bw")
    assert counter.frame_count == 1


class Scaled(tt.RNNCell):
    state_size = output_size = 3
    scale = 1.0

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        new = torch.tanh(state + self.scale * inputs)
        return new, new


def test_gradients_are_those_of_the_cell_as_it_was() -> None:
    cell, x = Scaled(), torch.ones(2, 4, 3, requires_grad=True)
    run = torch.compile(lambda x: tt.dynamic_rnn(cell, x, dtype=F32)[0].sum(), fullgraph=True, backend="aot_eager")
    found = []
    for scale in (1.0, 3.0):
        cell.scale = 1.0
        loss = run(x)
        cell.scale = scale
        found.append(torch.autograd.grad(loss, x)[0])
    assert torch.equal(*found)


def test_a_mode_that_changes_before_the_backward_pass() -> None:
    cell = tt.DropoutWrapper(tt.GRUCell(4, input_size=3), output_keep_prob=0.5)
    run = torch.compile(lambda x: tt.dynamic_rnn(cell, x, dtype=F32)[0].sum(), fullgraph=True, backend="aot_eager")
    x = torch.ones(2, 4, 3, requires_grad=True)
    loss = run(x)
    cell.eval()
    loss.backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


def test_a_cell_that_is_gone_before_the_backward_pass() -> None:
    def loss(x: Tensor) -> Tensor:
        cell = tt.GRUCell(4, input_size=3)
        run = torch.compile(lambda x: tt.dynamic_rnn(cell, x, dtype=F32)[0].sum(), fullgraph=True, backend="aot_eager")
        return run(x)

    x = torch.ones(2, 4, 3, requires_grad=True)
    made = loss(x)
    torch._dynamo.reset()
    gc.collect()
    made.backward()
    assert x.grad is not None
    assert x.grad.any()


def test_gradients_of_gradients_are_refused() -> None:
    cell, x = Scaled(), torch.ones(2, 4, 3, requires_grad=True)
    run = torch.compile(lambda x: tt.dynamic_rnn(cell, x, dtype=F32)[0].sum(), fullgraph=True, backend="eager")
    (first,) = torch.autograd.grad(run(x), x, create_graph=True)
    with pytest.raises(RuntimeError, match=r"torch.compile takes no gradients of gradients"):
        first.sum().backward()


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
@pytest.mark.parametrize("lengths", [[7, 3, 0, 5], torch.tensor([7, 3, 0, 5])], ids=["list", "tensor"])
def test_with_graphs_that_may_break(lengths: Any) -> None:
    """Without `fullgraph=True`, torch.compile leaves lengths in training to us, and does not look for more in there."""
    cell, x = MinimalGatedUnit(4), torch.randn(4, 7, 3)
    tt.dynamic_rnn(cell, x, dtype=F32)
    run = lambda x: tt.dynamic_rnn(cell, x, lengths, dtype=F32)[0].square().sum()  # noqa: E731
    want = torch.autograd.grad(run(x), list(cell.parameters()))
    counter = CompileCounter()
    compiled = torch.compile(run, backend=counter)
    for _ in range(3):
        check_close("broken graphs", torch.autograd.grad(compiled(x), list(cell.parameters())), want)
    # What is before and after the unroll, at most.
    assert counter.frame_count <= 3


def test_options_that_change_nothing() -> None:
    x, lengths = torch.randn(4, 7, 3), torch.tensor([7, 3, 0, 5])
    cell = tt.GRUCell(6, input_size=3)
    want = tt.dynamic_rnn(cell, x, lengths, dtype=F32)[0]
    for grad, options in ((True, {"swap_memory": True}), (False, {"checkpoint_every": 3})):
        with torch.set_grad_enabled(grad):
            run = torch.compile(
                lambda x, n, options=options: tt.dynamic_rnn(cell, x, n, dtype=F32, **options)[0],
                fullgraph=True,
                backend="aot_eager",
            )
            check_close(str(options), run(x, lengths), want)
    run = torch.compile(lambda x: tt.dynamic_rnn(cell, x, dtype=F32, checkpoint_every=3)[0], fullgraph=True)
    with pytest.raises(Exception, match=r"torch.compile does not take this: got checkpoint_every=3"):
        run(x)
