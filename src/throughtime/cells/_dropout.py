"""Dropout on the inputs, outputs and state of a cell."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from throughtime import _pytree
from throughtime._errors import (
    InvalidArgumentError,
    check_callable,
    check_dtype,
    check_flag,
    problem,
    shape_of,
)
from throughtime.cells._base import dims, shown_options
from throughtime.cells._cell_types import Cell, State, Wrapped_co
from throughtime.cells._copies import call_on_copies
from throughtime.cells._lstm import LSTMStateTuple
from throughtime.cells._rng import RandomModule
from throughtime.cells._seeded import check_keep_prob
from throughtime.cells._wrappers import CellWrapper

KeepProb = float | Tensor


class DropoutWrapper(RandomModule, CellWrapper[Wrapped_co]):
    """Dropout on a cell's inputs, outputs and outgoing state, with probabilities to *keep* a value.

    A kept value is divided by its probability. Every step draws new masks; with `variational_recurrent=True` (Gal and
    Ghahramani 2016) one mask of shape [1, size] serves every step and row of an unroll, and is drawn anew for the
    next (`reset_masks()` does so by hand). As everywhere in torch, dropout acts in training mode only: `cell.eval()`
    turns it off.

    `dropout_state_filter_visitor(substate)` says which parts of the state are dropped: True, False, or for a
    structure one bool for each part. By default that is everything except an LSTM's memory `c`. `seed` makes the
    masks reproducible: two wrappers with one seed draw the same masks in the same order. `variational_recurrent`
    needs `dtype`, and `input_size` if inputs are dropped.

    >>> import torch, throughtime as tt
    >>> cell = tt.DropoutWrapper(tt.GRUCell(4), output_keep_prob=0.5, seed=1)
    >>> outputs, _ = tt.dynamic_rnn(cell, torch.ones(8, 16, 3), dtype=torch.float32)
    >>> 0.3 < (outputs == 0).float().mean().item() < 0.7
    True
    """

    unwatched = CellWrapper.unwatched | {"_generators", "_masks"}

    def __init__(
        self,
        cell: Wrapped_co,
        input_keep_prob: KeepProb = 1.0,
        output_keep_prob: KeepProb = 1.0,
        state_keep_prob: KeepProb = 1.0,
        variational_recurrent: bool = False,
        input_size: Any = None,
        dtype: torch.dtype | None = None,
        seed: int | None = None,
        dropout_state_filter_visitor: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(cell)
        self.input_keep_prob = _check_keep_prob("input_keep_prob", input_keep_prob)
        self.output_keep_prob = _check_keep_prob("output_keep_prob", output_keep_prob)
        self.state_keep_prob = _check_keep_prob("state_keep_prob", state_keep_prob)
        self.variational_recurrent = check_flag("variational_recurrent", variational_recurrent)
        self.seed_with(seed)
        self._input_size = input_size
        self._visitor = _check_visitor(dropout_state_filter_visitor)
        self._masks: dict[tuple[str, int], Tensor] = {}
        if variational_recurrent:
            _check_variational(self.input_keep_prob, input_size, dtype)

    def forward(self: DropoutWrapper[Cell[State]], inputs: Any, state: Any) -> tuple[Any, State]:
        """One step of the cell inside, with dropout before and after it."""
        if not self.training:
            output, state = call_on_copies(self.cell, inputs, state)
            return output, state
        if _drops(self.input_keep_prob):
            if self.variational_recurrent:
                _check_input_size(inputs, self._input_size)
            inputs = self._drop("input", inputs, self.input_keep_prob, visitor=lambda _: True)
        output, state = call_on_copies(self.cell, inputs, state)
        if _drops(self.state_keep_prob):
            state = self._drop("state", state, self.state_keep_prob, visitor=self._visitor)
        if _drops(self.output_keep_prob):
            output = self._drop("output", output, self.output_keep_prob, visitor=lambda _: True)
        return output, state

    def extra_repr(self) -> str:
        """The options that are not the default."""
        usual = {"input_keep_prob": 1.0, "output_keep_prob": 1.0, "state_keep_prob": 1.0}
        options = shown_options(self, {**usual, "variational_recurrent": False, "seed": None})
        size = "" if self._input_size is None else f"input_size={self._input_size}"
        return ", ".join(filter(None, [options, size]))

    def begin_sequence(self) -> None:
        """A new unroll draws new variational masks."""
        super().begin_sequence()
        self.reset_masks()

    def reset_masks(self) -> None:
        """Forget the variational masks: the next step draws new ones."""
        # Where there are none, nothing changes about the cell.
        if self._masks:
            self._masks = {}

    def noise_state(self) -> Any:
        """What the coming masks depend on; `set_noise_state` goes back to it, so that a step can be computed again."""
        return dict(self._masks), super().noise_state()[1]

    def set_noise_state(self, noise_state: Any) -> None:
        """Go back to an earlier `noise_state`."""
        super().set_noise_state(noise_state)
        self._masks = dict(noise_state[0])

    def _drop(self, slot: str, tree: Any, keep_prob: KeepProb, visitor: Callable[[Any], Any]) -> Any:
        """Dropout on the leaves of `tree` that `visitor` lets through."""
        leaves = itertools.count()

        def visit(node: Any, wanted: bool) -> Any:
            verdict = visitor(node) if wanted else False
            if not _pytree.is_nest(node):
                leaf = (slot, next(leaves))
                return self._drop_leaf(leaf, node, keep_prob) if _check_verdict(node, verdict) else node
            parts = _pytree.children(node)
            wants = _check_verdict(node, verdict)
            return _pytree.rebuild(node, [visit(part, want) for part, want in zip(parts, wants, strict=True)])

        return visit(tree, True)

    def _drop_leaf(self, leaf: tuple[str, int], value: Any, keep_prob: KeepProb) -> Tensor:
        if not isinstance(value, Tensor) or not value.is_floating_point():
            slot = leaf[0]
            other = "leave it out with `dropout_state_filter_visitor`" if slot == "state" else "make it floating point"
            raise ValueError(
                problem(
                    f"dropout cannot scale the {slot} of the cell",
                    got=getattr(value, "dtype", type(value).__name__),
                    expected="a floating point tensor",
                    fix=f"Keep it with `{slot}_keep_prob=1.0`, or {other}.",
                )
            )
        return value * self._mask(leaf, value, keep_prob)

    def _mask(self, leaf: tuple[str, int], value: Tensor, keep_prob: KeepProb) -> Tensor:
        """Zeros, and 1 / keep_prob where a value is kept."""
        if not self.variational_recurrent:
            return self._draw(value.shape, value, keep_prob)
        if leaf not in self._masks:
            self._masks[leaf] = self._draw(torch.Size((1, *value.shape[1:])), value, keep_prob)
        return self._masks[leaf]

    def _draw(self, shape: torch.Size, like: Tensor, keep_prob: KeepProb) -> Tensor:
        return (torch.floor(self.uniform(shape, like) + keep_prob) / keep_prob).to(like.dtype)


def default_state_filter(substate: Any) -> Any:
    """Which parts of a state dropout touches: all but an LSTM's memory, and what is no tensor."""
    if isinstance(substate, LSTMStateTuple):
        return LSTMStateTuple(c=False, h=True)
    return isinstance(substate, Tensor) or _pytree.is_nest(substate)


def _drops(keep_prob: KeepProb) -> bool:
    return isinstance(keep_prob, Tensor) or keep_prob < 1


def _check_keep_prob(name: str, value: KeepProb) -> KeepProb:
    """A float, or a tensor of rank 0, whose value is looked at only where that costs no wait for a GPU."""
    if isinstance(value, Tensor) and value.ndim:
        got, fix = f"shape {tuple(value.shape)}", "Pass a float or a tensor of rank 0."
        raise ValueError(problem(f"`{name}` must be a scalar", got=got, expected="shape ()", fix=fix))
    if not isinstance(value, Tensor):
        return check_keep_prob(name, value)
    if value.device.type == "cpu":
        check_keep_prob(name, value.detach(), InvalidArgumentError)
    return value


def _check_verdict(node: Any, verdict: Any) -> Any:
    """What a visitor says of a leaf, or of each part of a structure in the order of the parts."""
    parts = len(_pytree.children(node)) if _pytree.is_nest(node) else 0
    if isinstance(verdict, bool):
        return [verdict] * parts if _pytree.is_nest(node) else verdict
    try:
        flags = (
            _pytree.children(_pytree.conform(_pytree.rebuild(node, [None] * parts), verdict, "verdict"))
            if parts
            else []
        )
    except (TypeError, ValueError):
        flags = []
    if not parts or len(flags) != parts or not all(isinstance(flag, bool) for flag in flags):
        expected = f"a bool, or {parts} of them" if parts else "a bool"
        what, fix = "`dropout_state_filter_visitor` gave no answer", "Return True to drop, False to keep."
        raise ValueError(problem(what, got=repr(verdict), expected=expected, fix=fix))
    return flags


def _check_visitor(visitor: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    if visitor is None:
        return default_state_filter
    fix = "Return True to drop, False to keep."
    check_callable("dropout_state_filter_visitor", visitor, expected="a function of a substate", fix=fix)
    return visitor


def _check_variational(input_keep_prob: KeepProb, input_size: Any, dtype: torch.dtype | None) -> None:
    if dtype is None:
        what, fix = "`variational_recurrent=True` needs `dtype`", "Pass `dtype=torch.float32`."
        raise ValueError(problem(what, got=None, expected="a torch dtype", fix=fix))
    check_dtype("dtype", dtype)
    if _drops(input_keep_prob) and input_size is None:
        what = "`variational_recurrent=True` with input dropout needs `input_size`"
        fix = "Pass `input_size=`, as an int or a torch.Size."
        raise ValueError(problem(what, got=None, expected="the width of the inputs", fix=fix))


def _check_input_size(inputs: Any, input_size: Any) -> None:
    """The inputs have the size that the wrapper was told, so that a mask of that size fits them."""
    with contextlib.suppress(TypeError, ValueError):
        # A dictionary has its keys in an order of its own.
        inputs = _pytree.conform(input_size, inputs, "`inputs`")
    shapes = [shape_of(leaf)[1:] for leaf in _pytree.flatten(inputs)]
    if shapes != [dims(size) for size in _pytree.flatten(input_size)]:
        what, fix = "`input_size` of a DropoutWrapper differs from its inputs", "Pass the width of the inputs."
        raise ValueError(problem(what, got=f"inputs of {shapes}", expected=f"`input_size` {input_size}", fix=fix))
