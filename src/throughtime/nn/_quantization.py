"""Quantisation in torch looks modules up by their class, and would pass ours over without a word.

So before it looks, those of ours inside the model become torch's again, with everything they hold. They are replaced
by quantised ones anyway; those that get no configuration stay ours.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

from torch import nn

from throughtime.nn._class_map import class_of_ours, class_of_torchs
from throughtime.nn._modules import DropIn


def show_torchs_classes() -> None:
    """Let `quantize_dynamic`, `prepare` and `prepare_fx` see torch's classes in place of ours."""
    # A function of the package has the name of the first module.
    quantize: Any = importlib.import_module("torch.ao.quantization.quantize")
    quantize_fx: Any = importlib.import_module("torch.ao.quantization.quantize_fx")
    propagate, prepare_fx = quantize.propagate_qconfig_, quantize_fx._prepare_fx

    @functools.wraps(propagate)
    def propagate_qconfig_(module: nn.Module, *args: Any, **options: Any) -> None:
        changed = _as_torchs(module)
        propagate(module, *args, **options)
        for part in changed:
            if part.qconfig is None:
                object.__setattr__(part, "__class__", class_of_ours(type(part)))

    @functools.wraps(prepare_fx)
    def _prepare_fx(model: nn.Module, *args: Any, **options: Any) -> Any:
        _as_torchs(model)
        return prepare_fx(model, *args, **options)

    quantize.propagate_qconfig_ = propagate_qconfig_
    quantize_fx._prepare_fx = _prepare_fx


def _as_torchs(model: nn.Module) -> list[Any]:
    """Give the drop-in modules inside `model` the classes that torch has for them."""
    changed = []
    for part in model.modules():
        kind = class_of_torchs(type(part)) if isinstance(part, DropIn) else None
        if kind is not None:
            # Past `__setattr__`, which is torch's and knows nothing of classes.
            object.__setattr__(part, "__class__", kind)
            changed.append(part)
    return changed
