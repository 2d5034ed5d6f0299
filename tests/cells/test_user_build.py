"""A user's own `build` is called once, by the first call; initialisers build all or nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import throughtime as tt

pytestmark = pytest.mark.covers("conformance")

F32 = torch.float32


class Built(tt.RNNCell):
    """Makes its weights anew whenever it is asked to."""

    state_size = output_size = 3

    def build(self, inputs_shape: Any, *, dtype: Any = None, device: Any = None) -> None:
        self.w = torch.nn.Parameter(torch.ones(inputs_shape[-1], 3, dtype=dtype, device=device))

    def forward(self, inputs: Any, state: Any) -> Any:
        new = torch.tanh(inputs @ self.w + state)
        return new, new


class BuiltAsInTensorFlow(Built):
    def build(self, inputs_shape: Any) -> None:  # type: ignore[override]
        self.w = torch.nn.Parameter(torch.ones(inputs_shape[-1], 3))


INSIDE: dict[str, Callable[[Any], Any]] = {
    "alone": lambda cell: cell,
    "on top": lambda cell: tt.MultiRNNCell([tt.GRUCell(3), cell]),
    "wrapped": lambda cell: tt.OutputProjectionWrapper(cell, 2),
    "residual": tt.ResidualWrapper,
}


@pytest.mark.parametrize("lengths", [None, [0, 0], [4, 1]], ids=["dense", "no step", "ragged"])
@pytest.mark.parametrize("kind", [Built, BuiltAsInTensorFlow])
@pytest.mark.parametrize("where", INSIDE)
def test_a_build_of_ones_own_is_called_once(where: str, kind: Any, lengths: Any) -> None:
    own = kind()
    cell = INSIDE[where](own)
    x = torch.ones(2, 4, 3)
    tt.dynamic_rnn(cell, x, lengths, dtype=torch.float32)
    torch.nn.init.constant_(own.w, 0.1)
    weight = own.w
    for again in (lengths, [0, 0], None):
        tt.dynamic_rnn(cell, x, again, dtype=torch.float32)
    assert own.w is weight
    assert own.w[0, 0].item() == pytest.approx(0.1)


@pytest.mark.parametrize("kind", [Built, BuiltAsInTensorFlow])
def test_a_build_that_the_user_has_called_is_not_called_again(kind: Any) -> None:
    cell = kind()
    cell.build((2, 3))
    torch.nn.init.constant_(cell.w, 0.1)
    cell(torch.ones(2, 3), torch.zeros(2, 3))
    tt.dynamic_rnn(cell, torch.ones(2, 4, 3), [0, 0], dtype=torch.float32)
    assert cell.w[0, 0].item() == pytest.approx(0.1)


def test_a_method_that_only_has_the_name() -> None:
    class Other(tt.RNNCell):
        state_size = output_size = 3

        def build(self) -> None:  # type: ignore[override]
            raise AssertionError

        def forward(self, inputs: Any, state: Any) -> Any:
            return inputs + state, state

    assert tt.dynamic_rnn(Other(), torch.ones(2, 4, 3), dtype=torch.float32)[0].shape == (2, 4, 3)


def test_stacked_convolutions() -> None:
    def layer(channels: int) -> Any:
        return tt.cells.Conv2DLSTMCell(input_shape=(4, 4, channels), output_channels=3, kernel_shape=(3, 3))

    cell = tt.MultiRNNCell([layer(2), layer(3)])
    assert tt.dynamic_rnn(cell, torch.zeros(2, 3, 4, 4, 2), dtype=torch.float32)[0].shape == (2, 3, 4, 4, 3)


def test_an_initialiser_may_return_its_tensor() -> None:
    cell = tt.LSTMCell(3, initializer=lambda t: torch.full_like(t, 0.5), input_size=2)
    assert (cell.kernel == 0.5).all()
    with pytest.raises(TypeError, match="an initialiser has neither filled its tensor nor returned one: got"):
        tt.GRUCell(3, kernel_initializer=lambda _: torch.ones(2), input_size=2)


def test_an_initialiser_that_fails_builds_nothing() -> None:
    cell = tt.LSTMCell(3, use_peepholes=True, initializer=torch.nn.init.xavier_uniform_)
    for _ in range(4):
        with pytest.raises(ValueError, match="Fan in and fan out") as raised:
            tt.dynamic_rnn(cell, torch.randn(2, 4, 3), dtype=torch.float32)
        assert "This was the initialiser of `w_f_diag` [3] of LSTMCell." in raised.value.__notes__
    assert not cell.built


def test_what_an_initialiser_returns_is_of_no_matter_once_it_has_filled() -> None:
    def orthogonal(tensor: Tensor) -> Tensor:
        torch.nn.init.zeros_(tensor)
        return torch.nn.init.orthogonal_(tensor[:3])

    assert (tt.LSTMCell(4, initializer=orthogonal, input_size=3).kernel[3:] == 0).all()
    with pytest.raises(TypeError, match="an initialiser has neither filled its tensor nor returned one"):
        tt.LSTMCell(4, initializer=lambda tensor: tensor[:3].zero_(), input_size=3)


class Gained(tt.LSTMCell):
    """One of ours with something more to build."""

    def build(self, inputs_shape: Any) -> None:  # type: ignore[override]
        super().build(inputs_shape)
        self.gain = nn.Parameter(torch.randn(4))

    def forward(self, inputs: Any, state: Any) -> Any:
        output, state = super().forward(inputs, state)
        return output * self.gain, state


class Making:
    """A build that is not a cell's."""

    def build(self, inputs_shape: Any, dtype: Any = None, device: Any = None) -> None:
        self.gain = nn.Parameter(torch.randn(inputs_shape[-1], 4))


class Mixed(Making, tt.RNNCell):
    state_size = output_size = 4

    def forward(self, token: Any, memory: Any) -> Any:
        new = torch.tanh(token @ self.gain + memory)
        return new, new


@pytest.mark.parametrize("kind", [lambda: Gained(4), Mixed], ids=["a subclass of ours", "a class beside"])
def test_builds_from_elsewhere_are_called_once(kind: Any) -> None:
    cell, x = kind(), torch.randn(2, 5, 3)
    tt.dynamic_rnn(cell, x, dtype=torch.float32)
    first = cell.gain
    tt.dynamic_rnn(cell, x, [0, 0], dtype=torch.float32)
    tt.dynamic_rnn(tt.MultiRNNCell([cell, tt.GRUCell(4)]), x, dtype=torch.float32)
    for _ in range(2):
        cell(x[:, 0], cell.zero_state(2, torch.float32))
    assert cell.gain is first


def test_a_first_step_by_keywords() -> None:
    cell = Mixed()
    cell(token=torch.randn(2, 3), memory=torch.zeros(2, 4))
    assert cell.gain.shape == (3, 4)


def test_threads_build_a_users_cell_once() -> None:
    built = []

    class Slow(Mixed):
        def build(self, inputs_shape: Any) -> None:  # type: ignore[override]
            time.sleep(0.1)
            built.append(1)
            super().build(inputs_shape)

    cell, x = Slow(), torch.randn(2, 5, 3)
    threads = [threading.Thread(target=tt.dynamic_rnn, args=(cell, x), kwargs={"dtype": F32}) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert built == [1]


def test_built_in_inference_mode_it_can_be_trained() -> None:
    cell, x = Mixed(), torch.randn(2, 5, 3)
    with torch.inference_mode():
        tt.dynamic_rnn(cell, x, dtype=torch.float32)
    tt.dynamic_rnn(cell, x, dtype=torch.float32)[0].sum().backward()
    assert cell.gain.grad is not None


def test_a_build_that_fails_is_called_again() -> None:
    class Failing(Gained):
        fails = True

        def build(self, inputs_shape: Any) -> None:
            super().build(inputs_shape)
            if self.fails:
                raise RuntimeError("not yet")
            self.more = nn.Parameter(torch.ones(1))

    cell, x = Failing(4), torch.randn(2, 5, 3)
    with pytest.raises(RuntimeError, match="not yet"):
        tt.dynamic_rnn(cell, x, dtype=torch.float32)
    cell.fails = False
    tt.dynamic_rnn(cell, x, dtype=torch.float32)
    assert cell.more.shape == (1,)


def test_cells_without_memory_can_be_made() -> None:
    state = torch.get_rng_state()
    with torch.device("meta"):
        cells = [tt.BasicRNNCell(3, activation="relu"), tt.DropoutWrapper(tt.GRUCell(3), 0.5)]
        cells.append(tt.cells.LayerNormBasicLSTMCell(3, dropout_keep_prob=0.5, input_size=2))
    assert cells[-1].kernel.is_meta
    with pytest.raises(ValueError, match="`activation` is unknown"):
        tt.BasicRNNCell(3, activation="dropout")
    assert torch.equal(torch.get_rng_state(), state)
