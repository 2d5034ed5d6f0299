"""`tt.accelerate`: torch's modules inside of a model become ours, and all else stays what it is."""

from __future__ import annotations

import copy
import logging
import pickle
from abc import ABC
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

import throughtime as tt
from compare import check_close

pytestmark = pytest.mark.covers("conformance")

X = torch.randn(5, 2, 3)


class Tagger(nn.Module):
    """A model as people write them."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.LSTM(3, 4, num_layers=2, bidirectional=True)
        self.deep = nn.ModuleList([nn.GRU(8, 6), nn.RNN(6, 6, nonlinearity="relu")])
        self.head = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.encoder(x)[0]
        for layer in self.deep:
            x = layer(x)[0]
        return self.head(x)


class Own(nn.LSTM):
    """A subclass that computes something else."""

    def forward(self, inputs: Tensor, hx: Any = None) -> Any:
        return nn.LSTM.forward(self, 2 * inputs, hx)


class Doubled(nn.LSTM):
    """A subclass that calls the `forward` that it inherits."""

    def forward(self, inputs: Tensor, hx: Any = None) -> Any:
        return super().forward(2 * inputs, hx)


class Mixin(ABC, nn.RNNBase):
    """As in packages for forecasting: what all kinds have in common, above torch's classes."""

    def forward(self, x: Any, hx: Any = None, lengths: Any = None) -> Any:  # type: ignore[override]
        if lengths is None:
            return super().forward(x, hx=hx)
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths)
        outputs, hidden = super().forward(packed, hx=hx)
        return nn.utils.rnn.pad_packed_sequence(outputs)[0], hidden


class Mixed(Mixin, nn.GRU):
    """One kind of it."""


class Named(nn.GRU):
    """A subclass that overrides nothing."""

    def summary(self) -> str:
        return f"{self.input_size} to {self.hidden_size}"


def test_a_model() -> None:
    model = Tagger()
    want, names, text = model(X), list(model.state_dict()), repr(model)
    parameters = list(model.parameters())
    assert tt.accelerate(model) is model
    assert [type(module) for module in (model.encoder, *model.deep)] == [tt.nn.LSTM, tt.nn.GRU, tt.nn.RNN]
    assert type(model.head) is nn.Linear
    assert (list(model.state_dict()), repr(model)) == (names, text)
    assert [id(weight) for weight in model.parameters()] == [id(weight) for weight in parameters]
    with tt.backend("cpu"):
        check_close("outputs", want, model(X))


def test_the_module_itself() -> None:
    theirs = nn.GRU(3, 4)
    want = theirs(X)
    ours: nn.GRU = tt.accelerate(theirs)
    assert ours is theirs
    assert isinstance(ours, tt.nn.GRU)
    check_close("results", want, ours(X))


def test_twice_is_once() -> None:
    model = tt.accelerate(Tagger())
    kinds = [type(module) for module in model.modules()]
    tt.accelerate(model)
    assert [type(module) for module in model.modules()] == kinds


def test_what_belongs_to_the_module_stays() -> None:
    model, seen = Tagger().eval(), []
    model.encoder.register_forward_hook(lambda *_: seen.append("hook"))
    model.encoder.weight_hh_l0.requires_grad_(False)
    model.encoder.a_note = "mine"  # type: ignore[assignment]
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    tt.accelerate(model)
    assert not model.encoder.training
    assert model.encoder.a_note == "mine"
    before = copy.deepcopy(model.state_dict())
    model.train()(X).sum().backward()
    optimizer.step()
    assert seen == ["hook"]
    changed = {name for name, weight in model.state_dict().items() if not torch.equal(weight, before[name])}
    assert changed == before.keys() - {"encoder.weight_hh_l0"}


def test_a_model_trains_as_before() -> None:
    found = []
    for change in (lambda model: model, tt.accelerate):
        torch.manual_seed(0)
        model = change(Tagger().double())
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        x = torch.randn(5, 2, 3, dtype=torch.float64)
        for _ in range(5):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        found.append(list(model.state_dict().values()))
    check_close("after training", *found)


def test_the_way_back() -> None:
    model, other = tt.accelerate(Tagger()), Tagger()
    other.load_state_dict(model.state_dict())
    check_close("in torch's modules", other(X), model(X))


def test_modules_that_occur_twice() -> None:
    shared = nn.GRU(3, 3)
    model = nn.ModuleDict({"one": shared, "other": shared})
    tt.accelerate(model)
    assert model["one"] is model["other"]
    assert type(shared) is tt.nn.GRU


def test_parametrized() -> None:
    models = [weight_norm(nn.LSTM(3, 4), "weight_hh_l0")]
    models.append(copy.deepcopy(models[0]))
    ours = tt.accelerate(models[0])
    assert isinstance(ours, tt.nn.LSTM)
    assert not isinstance(models[1], tt.nn.LSTM)
    with tt.backend("cpu"):
        check_close("results", models[1](X), ours(X))
    nn.utils.parametrize.remove_parametrizations(ours, "weight_hh_l0")
    assert type(ours) is tt.nn.LSTM
    check_close("removed", models[1](X), ours(X))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_under_torch_compile() -> None:
    model = tt.accelerate(Tagger())
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    check_close("compiled", model(X), compiled(X))
    torch._dynamo.reset()


@pytest.mark.parametrize("kind", [Doubled, Mixed, Named])
def test_subclasses(kind: Any) -> None:
    module = kind(3, 4)
    want, text = module(X), repr(module)
    tt.accelerate(module)
    assert isinstance(module, kind)
    assert isinstance(module, tt.nn.LSTM | tt.nn.GRU)
    assert repr(module) == text
    with tt.backend("cpu"):
        check_close("results", want, module(X))
    for copied in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert type(copied) is type(module)
        check_close("a copy", want, copied(X))
    assert type(tt.accelerate(kind(3, 4))) is type(module)


@pytest.mark.parametrize("which", range(2))
def test_a_class_that_does_not_let_others_inherit_freely(which: int) -> None:
    announced = []

    class Registering(nn.LSTM):
        def __init_subclass__(cls, /, name: str, **options: Any) -> None:
            super().__init_subclass__(**options)
            announced.append(name)

    class Registered(Registering, name="one"):
        pass

    class Final(nn.LSTM):
        def __init_subclass__(cls) -> None:
            raise TypeError("final")

    kind: Any = (Registered, Final)[which]
    module = kind(3, 4)
    want = module(X)
    tt.accelerate(module)
    assert isinstance(module, kind)
    assert isinstance(module, tt.nn.LSTM)
    assert announced == ["one"]
    with tt.backend("cpu"):
        check_close("results", want, module(X))


def test_a_class_whose_instances_cannot_change_theirs_is_left_alone() -> None:
    class Final(ABC, nn.LSTM):
        def __init_subclass__(cls) -> None:
            raise TypeError("final")

    module = Final(3, 4)
    with pytest.warns(UserWarning, match="has left alone .* `__init_subclass__` and a first base without `__dict__`"):
        tt.accelerate(module)
    assert type(module) is Final


def test_a_subclass_on_padded_sequences() -> None:
    module = Mixed(3, 4)
    want = module(X, lengths=[5, 2])
    tt.accelerate(module)
    with tt.backend("cpu"):
        check_close("results", want, module(X, lengths=[5, 2]))


def test_a_parametrized_subclass() -> None:
    module = weight_norm(Named(3, 4), "weight_hh_l0")
    want = module(X)
    tt.accelerate(module)
    check_close("results", want, module(X))
    assert module.summary() == "3 to 4"
    nn.utils.parametrize.remove_parametrizations(module, "weight_hh_l0")
    assert isinstance(module, Named)
    assert isinstance(module, tt.nn.GRU)
    check_close("removed", want, module(X))


def test_changes_are_logged_and_make_no_noise(caplog: pytest.LogCaptureFixture) -> None:
    # A warning would be an error here.
    with caplog.at_level(logging.INFO, "throughtime"):
        tt.accelerate(Tagger())
    assert caplog.messages == ["accelerate: now run by throughtime: encoder (LSTM), deep.0 (GRU), deep.1 (RNN)"]


class TestLeftAlone:
    def test_a_class_of_its_own(self) -> None:
        model = nn.Sequential(nn.ModuleDict({"own": Own(3, 4), "plain": nn.LSTM(3, 4)}))
        with pytest.warns(
            UserWarning, match=r"accelerate has left alone 0.own \(Own\): .*Own is a class with a `forward` of its"
        ):
            tt.accelerate(model)
        assert type(model[0]["own"]) is Own
        assert type(model[0]["plain"]) is tt.nn.LSTM

    def test_a_class_with_checks_of_its_own(self) -> None:
        class Permuting(nn.GRU):
            def permute_hidden(self, hx: Any, permutation: Any) -> Any:
                return hx

        with pytest.warns(UserWarning, match=r"a `permute_hidden` of its own; let it inherit from throughtime.nn"):
            tt.accelerate(Permuting(3, 4))

    def test_a_class_that_is_no_kind_of_torchs(self) -> None:
        class Other(nn.RNNBase):
            pass

        with pytest.warns(UserWarning, match=r"the module itself \(Other\): .*Other is a class with a `forward`"):
            tt.accelerate(Other("GRU", 3, 4))

    def test_a_replaced_forward(self) -> None:
        module: Any = nn.GRU(3, 4)
        module.forward = lambda x: x
        with pytest.warns(UserWarning, match="its `forward` has been replaced"):
            tt.accelerate(module)
        assert type(module) is nn.GRU

    @pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:torch.quantize_per_tensor")
    def test_quantized(self) -> None:
        model = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.LSTM(3, 4)), {nn.LSTM})
        with pytest.warns(UserWarning, match=r"0 \(LSTM\): it is quantized, with weights that are no parameters"):
            tt.accelerate(model)

    @pytest.mark.filterwarnings("ignore::DeprecationWarning")
    def test_scripted(self) -> None:
        model = nn.Sequential(torch.jit.script(nn.GRU(3, 4)))
        with pytest.warns(UserWarning, match="it is compiled by torch.jit, which takes torch's own modules alone"):
            tt.accelerate(model)

    def test_nothing_to_change(self) -> None:
        with pytest.warns(
            UserWarning, match="found no torch.nn.LSTM, GRU or RNN inside Sequential: nothing is changed"
        ):
            tt.accelerate(nn.Sequential(nn.Linear(3, 4)))

    def test_our_own_classes_of_users(self) -> None:
        class Mine(tt.nn.GRU):
            pass

        assert type(tt.accelerate(Mine(3, 4))) is Mine


@pytest.mark.parametrize("wrong", [None, nn.LSTM, [nn.LSTM(3, 4)], {"weight": torch.ones(2)}, "lstm"])
def test_not_a_module(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"`module` is no module: got .*, expected a torch.nn.Module. Pass the model"):
        tt.accelerate(wrong)
