"""What torch does with modules besides calling them: tracing, overriding, quantising, per-sample gradients."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils._per_sample_grad import call_for_per_sample_grads
from torch.nn.utils.rnn import pack_padded_sequence

import throughtime as tt
from compare import check_close

pytestmark = pytest.mark.covers("conformance")

KINDS = ("LSTM", "GRU", "RNN")
X = torch.randn(5, 4, 3)
LENGTHS = torch.tensor([5, 3, 2, 1])


def pair(kind: str, *sizes: int, **options: Any) -> tuple[Any, Any]:
    """Torch's module and ours, with the same weights."""
    theirs, ours = (getattr(where, kind)(*sizes, **options) for where in (nn, tt.nn))
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning", "ignore::FutureWarning")
class TestJitTrace:
    """A trace would have the lengths and the steps of the example."""

    CELL = tt.GRUCell(3, input_size=3)
    TRACED = (
        ("dynamic_rnn", lambda x, n: tt.dynamic_rnn(TestJitTrace.CELL, x, dtype=x.dtype)[0]),
        ("lengths", lambda x, n: tt.dynamic_rnn(TestJitTrace.CELL, x, n, dtype=x.dtype)[0]),
        ("both ways", lambda x, n: tt.bidirectional_dynamic_rnn(*[TestJitTrace.CELL] * 2, x, n, dtype=x.dtype)[0]),
        ("static_rnn", lambda x, n: tt.static_rnn(TestJitTrace.CELL, x.unbind(1), None, x.dtype, n)[0][0]),
        ("RNN", lambda x, n: tt.RNN(TestJitTrace.CELL)(x, n)[0]),
        ("tt.nn", lambda x, n: tt.nn.GRU(3, 3, batch_first=True)(x, sequence_length=n)[0]),
        ("raw_rnn", lambda x, n: tt.raw_rnn(TestJitTrace.CELL, lambda *_: None)),
        ("while_loop", lambda x, n: tt.while_loop(lambda i: i < n.max(), lambda i: i + 1, n.min())),
    )

    @pytest.mark.parametrize("call", [call for _, call in TRACED], ids=[name for name, _ in TRACED])
    def test_refused(self, call: Any) -> None:
        with pytest.raises(RuntimeError, match=r"cannot be traced: got torch.jit.trace or .* Use torch.export, torch"):
            torch.jit.trace(call, (X.transpose(0, 1), LENGTHS))

    def test_decoding(self) -> None:
        table = torch.randn(8, 3)

        def decode(start: Tensor) -> Any:
            helper = tt.decode.GreedyEmbeddingHelper(table, start, end_token=0)
            decoder = tt.decode.BasicDecoder(self.CELL, helper, self.CELL.zero_state(2, X.dtype))
            return tt.decode.dynamic_decode(decoder)[2]

        with pytest.raises(RuntimeError, match="dynamic_decode cannot be traced"):
            torch.jit.trace(decode, (torch.tensor([1, 2]),))

    def test_onnx(self) -> None:
        with pytest.raises(RuntimeError, match=r"torch.onnx.export\(dynamo=False\), which would fix its lengths"):
            torch.onnx.export(tt.RNN(self.CELL), (X.transpose(0, 1),), io.BytesIO(), dynamo=False)

    @pytest.mark.filterwarnings("ignore:Exporting a model to ONNX with a batch_size")
    @pytest.mark.parametrize("kind", KINDS)
    def test_onnx_of_a_module_by_itself(self, kind: str) -> None:
        pytest.importorskip("onnx")
        file = io.BytesIO()
        torch.onnx.export(getattr(tt.nn, kind)(3, 4), (X[:, :1],), file, dynamo=False)
        assert file.getvalue()

    def test_what_has_no_loop_of_its_own_is_traced(self) -> None:
        step = torch.jit.trace(self.CELL, (X[0], torch.zeros(4, 3)))
        check_close("a step", self.CELL(X[1], X[2]), step(X[1], X[2]))
        module = tt.nn.LSTM(3, 4)
        traced = torch.jit.trace(module, (X,))
        check_close("other steps and rows", module(X[:2, :3]), traced(X[:2, :3]))


class Model(nn.Module):
    def __init__(self, where: Any) -> None:
        super().__init__()
        self.lstm, self.gru, self.head = where.LSTM(3, 4), where.GRU(4, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor, hx: Tensor) -> Tensor:
        return self.head(self.gru(self.lstm(x)[0], hx)[0])


class TestFx:
    def test_modules_are_leaves(self) -> None:
        graphs = [torch.fx.symbolic_trace(Model(where)) for where in (nn, tt.nn)]
        theirs, ours = ([(node.op, node.target, len(node.args)) for node in graph.graph.nodes] for graph in graphs)
        assert [node[:2] for node in ours] == [node[:2] for node in theirs]
        hx = torch.randn(1, 4, 6)
        graphs[1].load_state_dict(graphs[0].state_dict())
        check_close("results", graphs[0](X, hx), graphs[1](X, hx))

    def test_lengths(self) -> None:
        class Tagger(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.gru = tt.nn.GRU(3, 4)

            def forward(self, x: Tensor, lengths: Tensor) -> Any:
                return self.gru(x, sequence_length=lengths)[1]

        model = Tagger()
        check_close("results", model(X, LENGTHS), torch.fx.symbolic_trace(model)(X, LENGTHS))

    def test_a_module_by_itself_fails_as_torchs_does(self) -> None:
        for where in (nn, tt.nn):
            with pytest.raises(torch.fx.proxy.TraceError, match="cannot be used as inputs to control flow"):
                torch.fx.symbolic_trace(where.GRU(3, 4))


class Wrapped:
    """Not a tensor, but torch's functions take it."""

    def __init__(self, data: Tensor) -> None:
        self.data, self.dtype, self.called = data, data.dtype, []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.data, name)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args[0].called.append(func.__name__)
        return func(*[value.data if isinstance(value, cls) else value for value in args], **(kwargs or {}))


@pytest.mark.parametrize("kind", KINDS)
def test_inputs_that_are_no_tensors(kind: str) -> None:
    theirs, ours = pair(kind, 3, 4)
    given = [Wrapped(X), Wrapped(X)]
    check_close("results", theirs(given[0]), ours(given[1]))
    assert given[1].called == given[0].called != []
    with pytest.raises(TypeError, match=r"`sequence_length` is for tensors: got .*Wrapped, expected a torch.Tensor"):
        ours(given[1], sequence_length=LENGTHS)


@pytest.mark.parametrize("kind", KINDS)
class TestPerSampleGradients:
    @pytest.fixture(autouse=True)
    def without_onednn(self) -> Any:
        # Torch's LSTM has no per-sample gradients there.
        torch._C._set_mkldnn_enabled(False)
        yield
        torch._C._set_mkldnn_enabled(True)

    def test_expanded_weights(self, kind: str) -> None:
        both = pair(kind, 3, 4, num_layers=2, batch_first=True)
        for module in both:
            call_for_per_sample_grads(module)(X)[0].square().sum().backward()
        theirs, ours = ([weight.grad_sample for weight in module.parameters()] for module in both)
        check_close("gradients", theirs, ours)

    def test_vmap(self, kind: str) -> None:
        theirs, ours = pair(kind, 3, 4, batch_first=True)
        call_for_per_sample_grads(theirs)(X)[0].square().sum().backward()
        weights = {name: weight.detach() for name, weight in ours.named_parameters()}

        def loss(weights: dict[str, Tensor], row: Tensor) -> Tensor:
            return torch.func.functional_call(ours, weights, (row[None],))[0].square().sum()

        found = torch.func.vmap(torch.func.grad(loss), (None, 0))(weights, X)
        check_close("gradients", {name: weight.grad_sample for name, weight in theirs.named_parameters()}, found)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_script_names_the_way_out() -> None:
    for module in (tt.nn.LSTM(3, 4), nn.Sequential(tt.nn.LSTM(3, 4))):
        with pytest.raises(RuntimeError, match=r"got LSTM, expected torch.nn.LSTM. Script the model before `tt.acc"):
            torch.jit.script(module)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize("make", [lambda: tt.RNN(tt.GRUCell(4)), lambda: tt.LSTMCell(4, input_size=3)])
def test_scripting_of_cells_names_the_alternatives(make: Any) -> None:
    expected = r"torch.jit.script does not take modules of throughtime: got .* Use torch.export or torch.compile"
    for model in (make(), nn.Sequential(nn.Linear(3, 3), make())):
        with pytest.raises(RuntimeError, match=expected):
            torch.jit.script(model)


@pytest.mark.parametrize("change", [torch.relu_, torch.tanh_, lambda outputs: outputs.mul_(2)])
@pytest.mark.parametrize("form", ["dense", "packed", "lengths"])
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_changed_in_place(kind: str, form: str, change: Any) -> None:
    """The gradients are those of a copy that is changed; of the second backward pass, too."""
    module = getattr(tt.nn, kind)(3, 4, dtype=torch.float64)
    inputs = X.double().requires_grad_()

    def gradients(*, copied: bool) -> list[Tensor]:
        given: Any = pack_padded_sequence(inputs, LENGTHS) if form == "packed" else inputs
        outputs = module(given, **({"sequence_length": LENGTHS} if form == "lengths" else {}))[0]
        rows = outputs.data if form == "packed" else outputs
        loss = change(rows.clone() if copied else rows).square().sum()
        wanted = [inputs, *module.parameters()]
        first = torch.autograd.grad(loss, wanted, retain_graph=True)
        return [*first, *torch.autograd.grad(loss, wanted)]

    for _ in range(2):
        check_close("gradients", gradients(copied=True), gradients(copied=False))


def test_dropout_is_drawn_again_for_outputs_changed_in_place() -> None:
    cell = tt.DropoutWrapper(tt.GRUCell(4, input_size=3), state_keep_prob=0.5)
    found = []
    for copied in (True, False):
        torch.manual_seed(0)
        outputs, _ = tt.dynamic_rnn(cell, X, dtype=X.dtype)
        loss = (outputs.clone() if copied else outputs).relu_().square().sum()
        found.append([loss, *torch.autograd.grad(loss, list(cell.parameters()))])
    check_close("gradients", *found)


def test_weights_changed_in_place_still_raise() -> None:
    module = tt.nn.GRU(3, 4)
    loss = module(X)[0].sum()
    with torch.no_grad():
        module.weight_hh_l0.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


class Counted(nn.Module):
    """A weight that counts how often it is computed, as every power iteration of spectral norm does."""

    count = 0

    def forward(self, weight: Tensor) -> Tensor:
        self.count += 1
        return 2 * weight


@pytest.mark.parametrize("kind", KINDS)
def test_computed_weights_are_read_as_often_as_by_torch(kind: str) -> None:
    counts = []
    for module in pair(kind, 3, 4):
        parts = [Counted(), Counted()]
        for name, part in zip(("weight_hh_l0", "bias_ih_l0"), parts, strict=True):
            parametrize.register_parametrization(module, name, part)
        counts.append([])
        for given in (X, X, X[:, 0], pack_padded_sequence(X, LENGTHS)):
            module(given)
            counts[-1].append([part.count for part in parts])
    assert counts[1] == counts[0]


def test_a_list_of_weights_that_was_replaced() -> None:
    """Torch reads its private list until a parameter is replaced; so do ours."""
    both = pair("GRU", 3, 4)
    for module in both:
        module._flat_weights = [2 * weight for weight in module._flat_weights]
    check_close("the list", both[0](X), both[1](X))
    weight = nn.Parameter(torch.randn(12, 4))
    for module in both:
        module.weight_hh_l0 = weight
    check_close("a parameter", both[0](X), both[1](X))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*quantize_per_tensor", "ignore::UserWarning")
class TestQuantization:
    def test_dynamic(self) -> None:
        theirs, ours = Model(nn), Model(tt.nn)
        ours.load_state_dict(theirs.state_dict())
        hx = torch.randn(1, 4, 6)
        quantized = [torch.ao.quantization.quantize_dynamic(model) for model in (theirs, ours)]
        assert type(quantized[1].lstm) is type(quantized[0].lstm) is not nn.LSTM
        check_close("results", quantized[0](X, hx), quantized[1](X, hx))
        assert type(ours.lstm) is tt.nn.LSTM

    def test_what_is_not_asked_for_stays_ours(self) -> None:
        model = torch.ao.quantization.quantize_dynamic(Model(tt.nn), {nn.GRU})
        assert type(model.lstm) is tt.nn.LSTM
        assert "quantized" in type(model.gru).__module__

    def test_a_class_of_ours_asked_for_by_its_name(self) -> None:
        model = nn.Sequential(Model(tt.nn), nn.LSTM(3, 4))
        model = torch.ao.quantization.quantize_dynamic(model, {tt.nn.LSTM})
        assert "quantized" in type(model[0].lstm).__module__
        assert type(model[0].gru) is tt.nn.GRU
        assert type(model[1]) is nn.LSTM

    @pytest.mark.parametrize("spec", [None, {nn.LSTM}, {tt.nn.LSTM}])
    def test_a_module_alone_is_refused(self, spec: Any) -> None:
        """Torch quantises children only, and returns its own modules unchanged."""
        module = tt.nn.LSTM(3, 4)
        expected = r"leave this one as it is: got LSTM itself, .*`quantize_dynamic\(nn.Sequential\(module\)\)\[0\]`"
        with pytest.raises(ValueError, match=expected):
            torch.ao.quantization.quantize_dynamic(module, spec, inplace=True)
        assert type(module) is tt.nn.LSTM
        assert type(torch.ao.quantization.quantize_dynamic(module, {nn.GRU})) is tt.nn.LSTM
        wrapped = torch.ao.quantization.quantize_dynamic(nn.Sequential(module), spec)[0]
        assert "quantized" in type(wrapped).__module__

    def test_an_accelerated_subclass_is_passed_over_as_by_torch(self) -> None:
        class Named(nn.LSTM):
            pass

        model = nn.Sequential(Named(3, 4))
        plain = torch.ao.quantization.quantize_dynamic(model)
        assert type(plain[0]) is Named
        tt.accelerate(model)
        assert isinstance(torch.ao.quantization.quantize_dynamic(model)[0], tt.nn.LSTM)


class TestStatesOfAnLSTM:
    """Torch's is (h, c), TensorFlow's (c, h)."""

    STATE = tt.LSTMStateTuple(c=torch.randn(1, 4, 6), h=torch.randn(1, 4, 2))

    @pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
    def test_drop_in_modules_take_torchs_order_and_names(self) -> None:
        theirs, ours = pair("LSTM", 3, 6, proj_size=2)
        want = theirs(X, (self.STATE.h, self.STATE.c))
        check_close("torch's order", want, ours(X, (self.STATE.h, self.STATE.c)))
        check_close("by name", want, ours(X, self.STATE))

    @pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
    @pytest.mark.parametrize("nested", [False, True])
    def test_cells_say_which_is_which(self, nested: bool) -> None:
        cell: Any = tt.LSTMCell(6, num_proj=2)
        h, c = nn.LSTM(3, 6, proj_size=2)(X)[1]
        for given in ((h, c), (h[0], c[0])):
            state = (given,) if nested else given
            runs = tt.MultiRNNCell([cell]) if nested else cell
            with pytest.raises(
                ValueError, match=r"taken as `\(c, h\)`.* `tt.LSTMStateTuple\(c=c_n\[0\], h=h_n\[0\]\)`"
            ):
                tt.dynamic_rnn(runs, X, initial_state=state, time_major=True)
        named = tt.LSTMStateTuple(c=c[0], h=h[0])
        tt.dynamic_rnn(copy.deepcopy(cell), X, initial_state=named, time_major=True)
