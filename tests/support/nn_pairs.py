"""Modules of `torch.nn` and of `tt.nn` of the same seed, their inputs, and what is compared of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import throughtime as tt
from compare import Measured, check_same, gradients

F64 = torch.float64
B, T, I, H = 4, 5, 3, 7  # noqa: E741 (the letters of the dimensions)
LENGTHS = [3, 1, 5, 2]
KINDS = ("LSTM", "GRU", "RNN")


def pair(kind: str, sizes: tuple[int, int] = (I, H), **options: Any) -> tuple[Any, Any]:
    """Torch's module and ours, of the same seed."""
    made = []
    for home in (nn, tt.nn):
        torch.manual_seed(3)
        made.append(getattr(home, kind)(*sizes, **options))
    return made[0], made[1]


def batch(module: Any, form: str, dtype: torch.dtype = F64, sizes: tuple[int, int] = (B, T)) -> Any:
    """Inputs for a module; what is to be differentiated is a leaf."""
    rows, steps = sizes
    shape = (rows, steps) if module.batch_first else (steps, rows)
    if form == "unbatched":
        shape = (steps,)
    x = torch.randn(*shape, module.input_size, dtype=dtype)
    if not form.startswith("packed"):
        return x.requires_grad_()
    lengths = torch.tensor(LENGTHS if form == "packed" else sorted(LENGTHS, reverse=True))
    packed = pack_padded_sequence(x, lengths, module.batch_first, enforce_sorted=form == "packed sorted")
    return packed._replace(data=packed.data.requires_grad_())


def states(module: Any, form: str, dtype: torch.dtype = F64, rows: int = B) -> Any:
    """Something to start from."""
    layers = module.num_layers * (2 if module.bidirectional else 1)
    shape = (layers,) if form == "unbatched" else (layers, rows)
    widths = (module.proj_size or module.hidden_size, module.hidden_size)
    leaves = tuple(torch.randn(*shape, width, dtype=dtype).requires_grad_() for width in widths)
    return leaves if module.mode == "LSTM" else leaves[0]


def measured(module: Any, x: Any, hx: Any = None, **options: Any) -> Measured:
    """Results, and gradients of inputs, states and all weights."""
    torch.manual_seed(11)
    outputs, last = module(x, hx, **options)
    given = [] if hx is None else list(hx) if isinstance(hx, tuple) else [hx]
    sources = {
        "inputs": x.data if isinstance(x, PackedSequence) else x,
        **{f"hx[{place}]": leaf for place, leaf in enumerate(given)},
        **dict(module.named_parameters()),
    }
    if isinstance(x, PackedSequence):
        assert isinstance(outputs, PackedSequence)
        assert outputs[1:] == x[1:] or all(map(torch.equal, outputs[1:], x[1:]))
        outputs = outputs.data
    results = (outputs, last)
    return Measured(results, gradients(results, sources))


def check(theirs: Any, ours: Any, x: Any, hx: Any = None) -> None:
    want = measured(theirs, x, hx)
    # The second time the call is known.
    for _ in range(2):
        check_same(want, measured(ours, x, hx))
