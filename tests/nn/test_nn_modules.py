"""`tt.nn` as modules: what torch can do to one of its own, it can do to ours. Errors are torch's, or as clear."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm
from torch.nn.utils.rnn import pack_padded_sequence

import throughtime as tt
from compare import check_close
from nn_pairs import F64, KINDS, B, H, I, T, batch, check, measured, pair, states

pytestmark = pytest.mark.covers("conformance")

X = torch.randn(T, B, I)


@pytest.mark.parametrize("kind", KINDS)
class TestMadeAsTorchMakesThem:
    def test_from_the_same_seed(self, kind: str) -> None:
        theirs, ours = pair(kind, num_layers=2, bidirectional=True)
        assert isinstance(ours, type(theirs))
        assert [name for name, _ in ours.named_parameters()] == [name for name, _ in theirs.named_parameters()]
        assert all(map(torch.equal, ours.parameters(), theirs.parameters()))
        assert repr(ours) == repr(theirs)
        assert list(ours.modules()) == [ours]

    def test_arguments(self, kind: str) -> None:
        ours = getattr(tt.nn, kind)(I, H, 2, device="cpu", dtype=F64)
        assert ours.weight_hh_l1.dtype is F64
        with pytest.raises(ValueError, match="hidden_size must be greater than zero"):
            getattr(tt.nn, kind)(I, 0)
        with pytest.warns(UserWarning, match="dropout option adds dropout after all but last"):
            getattr(tt.nn, kind)(I, H, dropout=0.5)

    def test_state_dicts_go_both_ways(self, kind: str) -> None:
        theirs, ours = pair(kind)
        nn.init.uniform_(theirs.weight_hh_l0)
        ours.load_state_dict(theirs.state_dict())
        check_close("loaded", theirs(X), ours(X))
        ours.reset_parameters()
        theirs.load_state_dict(ours.state_dict())
        check_close("loaded back", theirs(X), ours(X))


@pytest.mark.parametrize("kind", KINDS)
class TestCopies:
    @pytest.mark.parametrize(
        "duplicate",
        [
            copy.deepcopy,
            lambda module: pickle.loads(pickle.dumps(module)),
            lambda module: torch.load(_saved(module), weights_only=False),
        ],
        ids=["deepcopy", "pickle", "torch.save"],
    )
    def test_have_weights_of_their_own(self, kind: str, duplicate: Any) -> None:
        ours = getattr(tt.nn, kind)(I, H, num_layers=2)
        want = ours(X)
        other = duplicate(ours)
        assert type(other) is type(ours)
        check_close("a copy", want, other(X))
        with torch.no_grad():
            other.weight_hh_l1.mul_(3)
        assert not torch.equal(other(X)[0], want[0])
        assert torch.equal(ours(X)[0], want[0])

    def test_share_memory(self, kind: str) -> None:
        ours = getattr(tt.nn, kind)(I, H).share_memory()
        theirs = getattr(nn, kind)(I, H)
        theirs.load_state_dict(ours.state_dict())
        assert ours.weight_hh_l0.is_shared()
        check_close("shared", theirs(X), ours(X))


def _saved(module: nn.Module) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return file


class TestWeightsThatChange:
    """Known calls, and then others."""

    def both(self) -> tuple[Any, Any]:
        theirs, ours = pair("LSTM", num_layers=2)
        for module in (theirs, ours):
            for _ in range(2):
                module(X)
        return theirs, ours

    def test_in_place(self) -> None:
        theirs, ours = self.both()
        for module in (theirs, ours):
            torch.optim.SGD(module.parameters(), 0.5).zero_grad()
            module(X)[0].sum().backward()
            torch.optim.SGD(module.parameters(), 0.5).step()
        check_close("after a step", theirs(X), ours(X))

    def test_converted_and_back(self) -> None:
        theirs, ours = self.both()
        for dtype in (F64, torch.bfloat16, torch.float32):
            theirs, ours = theirs.to(dtype), ours.to(dtype)
            check_close(str(dtype), theirs(X.to(dtype)), ours(X.to(dtype)))

    def test_replaced(self) -> None:
        theirs, ours = self.both()
        weight = nn.Parameter(torch.randn(4 * H, H))
        for module in (theirs, ours):
            module.weight_hh_l1 = weight
        check(theirs, ours, X.clone().requires_grad_())

    def test_shared_by_two_layers_and_twice_in_one(self) -> None:
        theirs, ours = pair("RNN", (H, H), num_layers=2, dtype=F64)
        for module in (theirs, ours):
            module.weight_ih_l1 = module.weight_ih_l0
            module.bias_hh_l0 = module.bias_ih_l0
        check(theirs, ours, torch.randn(T, B, H, dtype=F64, requires_grad=True))

    def test_functional_call(self) -> None:
        theirs, ours = self.both()
        others = {name: torch.randn_like(weight).requires_grad_() for name, weight in ours.named_parameters()}
        want, got = (torch.func.functional_call(module, others, (X,)) for module in (theirs, ours))
        check_close("other weights", want, got)
        pulled = [torch.autograd.grad(one[0].sum(), list(others.values())) for one in (want, got)]
        check_close("their gradients", *pulled)
        check_close("their own weights again", theirs(X), ours(X))

    @pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
    @pytest.mark.parametrize("norm", [weight_norm, nn.utils.weight_norm], ids=["parametrization", "hook"])
    def test_computed(self, norm: Any) -> None:
        theirs, ours = pair("LSTM", dtype=F64)
        for module in (theirs, ours):
            norm(module, "weight_hh_l0")
        assert ours.state_dict().keys() == theirs.state_dict().keys()
        for _ in range(2):
            check(theirs, ours, batch(theirs, "dense"))
        with torch.no_grad():
            for module in (theirs, ours):
                next(weight for name, weight in module.named_parameters() if name.endswith(("0", "_g"))).mul_(2)
        check(theirs, ours, batch(theirs, "packed"))

    def test_parametrized_copies(self) -> None:
        ours = weight_norm(tt.nn.GRU(I, H), "weight_hh_l0")
        with torch.no_grad():
            want = ours(X)
            check_close("a copy", want, copy.deepcopy(ours)(X))
        parametrize.remove_parametrizations(ours, "weight_hh_l0")
        assert type(ours) is tt.nn.GRU
        check_close("removed", want, ours(X))

    def test_nothing_outlives_the_module(self) -> None:
        ours = tt.nn.LSTM(I, H, num_layers=2)
        for _ in range(2):
            ours(X)[0].sum().backward()
            with torch.no_grad():
                ours(X)
        left = [weakref.ref(ours), *map(weakref.ref, ours.parameters())]
        gc.disable()
        try:
            del ours
            assert [name() for name in left] == [None] * len(left)
        finally:
            gc.enable()

    def test_in_threads(self) -> None:
        """Modules of one structure share what is known of their calls, and nothing else."""
        wanted = {module: module(X)[0] for module in (tt.nn.GRU(I, H) for _ in range(4))}
        failed: list[nn.Module] = []

        def call(module: nn.Module) -> None:
            failed.extend(module for _ in range(20) if not torch.equal(module(X)[0], wanted[module]))

        threads = [threading.Thread(target=call, args=(module,)) for module in wanted]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []

    def test_nothing_of_ours_is_kept_with_the_module(self) -> None:
        theirs, ours = self.both()
        assert vars(ours).keys() == vars(theirs).keys()


class TestTorchCompile:
    pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

    @pytest.fixture(autouse=True)
    def fresh(self) -> Iterator[None]:
        torch._dynamo.reset()
        yield
        torch._dynamo.reset()

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("given", [False, True], ids=["zeros", "hx"])
    def test_fullgraph(self, kind: str, given: bool) -> None:
        theirs, ours = pair(kind, dtype=F64, num_layers=2, bidirectional=True)
        x, hx = batch(theirs, "dense"), states(theirs, "dense") if given else None
        compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)

        class Compiled(nn.Module):
            forward = staticmethod(compiled)
            named_parameters = ours.named_parameters

        check(theirs, Compiled(), x, hx)

    def test_one_operator_for_each_layer_and_direction(self) -> None:
        nodes: list[Any] = []

        def look(graph: Any, _: Any) -> Any:
            nodes.extend(node for node in graph.graph.nodes if "unroll" in str(node.target))
            return graph

        torch.compile(tt.nn.LSTM(I, H, num_layers=2, bidirectional=True), backend=look, fullgraph=True)(X)
        assert len(nodes) == 4

    def test_lengths(self) -> None:
        ours = tt.nn.GRU(I, H, bidirectional=True, dtype=F64)
        x, lengths = batch(ours, "dense"), torch.tensor([3, 0, T, 1])
        compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)
        check_close("compiled", ours(x, sequence_length=lengths), compiled(x, sequence_length=lengths))
        check_close("a list", ours(x, sequence_length=[1] * B), compiled(x, sequence_length=[1] * B))

    def test_weights_that_change(self) -> None:
        ours = tt.nn.GRU(I, H)
        compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)
        compiled(X)
        with torch.no_grad():
            ours.weight_hh_l0.mul_(2)
        check_close("in place", ours(X), compiled(X))
        weight_norm(ours, "weight_hh_l0")
        compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)
        check_close("computed", ours(X), compiled(X))
        pulled = [torch.autograd.grad(run(X)[0].sum(), list(ours.parameters())) for run in (ours, compiled)]
        check_close("their gradients", *pulled)

    def test_dropout_and_a_head(self) -> None:
        model = nn.Sequential(tt.nn.LSTM(I, H, num_layers=2, dropout=1.0))
        compiled = torch.compile(lambda x: model(x)[0].sum(), backend="aot_eager", fullgraph=True)
        check_close("compiled", model(X)[0].sum(), compiled(X))

    def test_packed_sequences_break_the_graph(self) -> None:
        ours = tt.nn.GRU(I, H)
        packed = pack_padded_sequence(X, torch.tensor([5, 3, 2, 1]))
        compiled = torch.compile(lambda given: ours(given)[1] * 2, backend="aot_eager")
        with torch.no_grad():
            check_close("compiled", ours(packed)[1] * 2, compiled(packed))

    def test_of_torchs_own_nothing_changes(self) -> None:
        model = nn.Sequential(nn.GRU(I, H))
        with pytest.raises(torch._dynamo.exc.Unsupported, match="Attempted to wrap RNN, GRU, or LSTM"):
            torch.compile(model, backend="aot_eager", fullgraph=True)(X)


@pytest.mark.filterwarnings("ignore")
class TestProgramsForOthers:
    """What is written down to run elsewhere holds torch's own operator."""

    def test_exported(self) -> None:
        ours = tt.nn.LSTM(I, H, bidirectional=True).eval()
        rows = torch.export.Dim("rows", min=2, max=50)
        program = torch.export.export(ours, (X,), dynamic_shapes=({1: rows},))
        assert "aten.lstm" in str(program.graph)
        check_close("exported", ours(X[:, :3]), program.module()(X[:, :3]))

    def test_exported_with_lengths(self) -> None:
        ours = tt.nn.GRU(I, H, bidirectional=True).eval()
        lengths = torch.tensor([3, 0, T, 1])
        program = torch.export.export(ours, (X,), {"sequence_length": lengths}, strict=False)
        other = torch.tensor([1, 2, 0, 4])
        check_close("exported", ours(X, sequence_length=other), program.module()(X, sequence_length=other))

    def test_traced(self) -> None:
        ours = tt.nn.GRU(I, H)
        traced = torch.jit.trace(ours, (X,))
        check_close("traced", ours(X[:2]), traced(X[:2]))

    def test_without_a_kernel(self) -> None:
        ours = tt.nn.GRU(I, H, device="meta")
        assert ours(X.to("meta"))[0].shape == (T, B, H)
        with tt.backend("cpu"), pytest.raises(ValueError, match="no kernels for the device meta"):
            ours(X.to("meta"))


def test_transforms() -> None:
    """These see every operation: the plain loop runs. Torch's own module cannot do the first."""
    ours = tt.nn.GRU(I, H)
    many = torch.randn(3, T, B, I)
    check_close("vmap", torch.stack([ours(x)[0] for x in many]), torch.vmap(lambda x: ours(x)[0])(many))
    with tt.backend("cpu"), pytest.raises(ValueError, match=r"a transform of torch.func is at work"):
        torch.vmap(lambda x: ours(x)[0])(many)


def test_hooks_see_the_call() -> None:
    ours, seen = tt.nn.GRU(I, H), []
    ours.register_forward_hook(lambda module, given, result: seen.append((given[0].shape, result[0].shape)))
    with tt.backend("cpu"):
        ours(X)
    assert seen == [((T, B, I), (T, B, H))]


def test_flatten_parameters_has_nothing_to_do() -> None:
    ours = tt.nn.LSTM(I, H)
    before = [weight.data_ptr() for weight in ours.parameters()]
    ours.flatten_parameters()
    assert [weight.data_ptr() for weight in ours.parameters()] == before


WRONG: dict[str, Any] = {
    "four axes": lambda module: module(torch.randn(2, T, B, I)),
    "one axis": lambda module: module(torch.randn(I)),
    "width": lambda module: module(torch.randn(T, B, I + 1)),
    "packed width": lambda module: module(pack_padded_sequence(torch.randn(T, B, I + 1), [T] * B)),
    "dtype": lambda module: module(X.double()),
    "axes of the state": lambda module: module(X, _state(module, 1, H)),
    "axes of the state of one": lambda module: module(X[:, 0], _state(module, 1, B, H)),
    "layers of the state": lambda module: module(X, _state(module, 2, B, H)),
    "rows of the state": lambda module: module(X, _state(module, 1, B + 1, H)),
    "width of the state": lambda module: module(X, _state(module, 1, B, H + 1)),
    "no tensor": lambda module: module([1.0]),
    "the state of another": lambda module: module(X, X[:1] if module.mode == "LSTM" else (X, X)),
}


def _state(module: Any, *shape: int) -> Any:
    leaf = torch.zeros(shape)
    return (leaf, leaf) if module.mode == "LSTM" else leaf


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("kind", KINDS)
def test_errors_are_torchs_own(kind: str, wrong: str) -> None:
    if (kind, wrong) == ("LSTM", "packed width"):
        pytest.skip("torch does not notice")
    theirs, ours = pair(kind)
    found = []
    for module in (theirs, ours):
        with pytest.raises((RuntimeError, ValueError, AttributeError, IndexError, TypeError)) as error:
            WRONG[wrong](module)
        found.append((error.type, str(error.value)))
    assert found[0] == found[1]


class TestErrorsOfOurOwn:
    def test_lengths_of_packed_sequences(self) -> None:
        packed = pack_padded_sequence(X, torch.tensor([5, 3, 2, 1]))
        with pytest.raises(ValueError, match="`sequence_length` is for padded batches") as error:
            tt.nn.GRU(I, H)(packed, sequence_length=[5, 3, 2, 1])
        assert "got a PackedSequence, which knows its lengths, expected a tensor. Leave" in str(error.value)

    def test_the_length_of_one(self) -> None:
        with pytest.raises(
            ValueError, match=r"got one sequence of shape \(5, 3\), expected a tensor with a batch axis"
        ):
            tt.nn.GRU(I, H)(X[:, 0], sequence_length=[5])

    def test_too_few_lengths(self) -> None:
        with pytest.raises(tt.InvalidArgumentError, match=r"got shape \(3,\), expected shape \(4,\)"):
            tt.nn.GRU(I, H)(X, sequence_length=[5, 3, 2])

    def test_lengths_of_what_is_no_batch(self) -> None:
        with pytest.raises(ValueError, match="GRU: Expected input to be 2D or 3D, got 1D instead"):
            tt.nn.GRU(I, H)(torch.randn(I), sequence_length=[1])

    def test_lengths_by_place(self) -> None:
        """Exporters pass every argument of a signature by position."""
        module = tt.nn.GRU(I, H)
        check_close("results", module(X, sequence_length=[5, 3, 2, 1]), module(X, None, [5, 3, 2, 1]))
        with pytest.raises(TypeError, match="positional arguments"):
            module(X, None, None, None)

    @pytest.mark.parametrize(
        ("arguments", "reverse"), [((1,), False), ((0,), True)], ids=["no such layer", "no such direction"]
    )
    def test_no_such_cell(self, arguments: Any, reverse: bool) -> None:
        with pytest.raises(ValueError, match=r"there is no such cell: got .*, expected one of 1 layers, in 1 direct"):
            tt.nn.GRU(I, H).cell(*arguments, reverse=reverse)

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_state_of_another_dtype_or_device(self, kind: str) -> None:
        ours = getattr(tt.nn, kind)(I, H)
        for leaf in (torch.zeros(1, B, H, dtype=F64), torch.zeros(1, B, H, device="meta")):
            with pytest.raises(
                RuntimeError, match=r"`hx` does not fit: got .*, expected torch.float32 on cpu, as `inp"
            ):
                ours(X, (leaf, leaf) if kind == "LSTM" else leaf)

    def test_the_width_of_packed_sequences(self) -> None:
        """Torch's LSTM takes them, and reads what is not there."""
        with pytest.raises(RuntimeError, match=r"input.size\(-1\) must be equal to input_size. Expected 3, got 4"):
            tt.nn.LSTM(I, H)(pack_padded_sequence(torch.randn(T, B, I + 1), [T] * B))

    def test_not_a_cell(self) -> None:
        with pytest.raises(TypeError, match=r"Pass one of its layers, as in `module.cell\(0\)`"):
            tt.explain(tt.nn.GRU(I, H), X)


def test_training_goes_the_same_way() -> None:
    """Ten steps of Adam, with both."""
    found = []
    for home in (nn, tt.nn):
        torch.manual_seed(0)
        rnn, head = home.LSTM(I, H, bidirectional=True, dtype=F64), nn.Linear(2 * H, 1, dtype=F64)
        optimizer = torch.optim.Adam([*rnn.parameters(), *head.parameters()], 0.01)
        x = torch.randn(T, B, I, dtype=F64)
        for _ in range(10):
            optimizer.zero_grad()
            loss = (head(rnn(x)[0]) - 1).square().mean()
            loss.backward()
            optimizer.step()
        found.append(torch.cat([loss.detach().view(1), *[weight.detach().flatten() for weight in rnn.parameters()]]))
    check_close("after training", *found)


def test_gradients_can_be_asked_for_twice() -> None:
    ours = tt.nn.GRU(I, H, num_layers=2, dtype=F64)
    x: Tensor = batch(ours, "dense")
    first, second = (measured(ours, x).gradients for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)
