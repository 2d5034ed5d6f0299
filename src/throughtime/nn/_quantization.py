"""Quantisation in torch looks modules up by their class, and would skip ours silently.

So before it does, those of ours inside the model become torch's again, with all their attributes. They are replaced by
quantised ones anyway; those that get no configuration stay ours.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

from torch import nn

from throughtime._errors import problem, type_name
from throughtime.nn._class_map import class_of_ours, class_of_torchs
from throughtime.nn._modules import DropIn


def show_torchs_classes() -> None:
    """Let `quantize_dynamic`, `prepare` and `prepare_fx` find torch's classes instead of ours."""
    # A function of the package has the name of the first module.
    quantize: Any = importlib.import_module("torch.ao.quantization.quantize")
    quantize_fx: Any = importlib.import_module("torch.ao.quantization.quantize_fx")
    propagate, prepare_fx = quantize.propagate_qconfig_, quantize_fx._prepare_fx

    @functools.wraps(propagate)
    def propagate_qconfig_(module: nn.Module, qconfig_dict: Any = None, *args: Any, **options: Any) -> None:
        configured = hasattr(module, "qconfig")
        changed = _as_torchs(module)
        propagate(module, _by_name(module, changed, qconfig_dict or {}), *args, **options)
        unused = [part for part in changed if part.qconfig is None or part is module]
        for part in unused:
            object.__setattr__(part, "__class__", class_of_ours(type(part)))
        if isinstance(module, DropIn) and module.qconfig is not None:
            if not configured:
                del module.qconfig
            raise _not_inside_a_model(module)

    @functools.wraps(prepare_fx)
    def _prepare_fx(model: nn.Module, *args: Any, **options: Any) -> Any:
        _as_torchs(model)
        return prepare_fx(model, *args, **options)

    quantize.propagate_qconfig_ = propagate_qconfig_
    quantize_fx._prepare_fx = _prepare_fx


def _by_name(model: nn.Module, changed: list[Any], qconfigs: dict[Any, Any]) -> dict[Any, Any]:
    """The configurations, those for classes of ours also under the names of the modules that were of these classes."""
    ours = ((name, class_of_ours(type(part))) for name, part in model.named_modules() if part in changed)
    return {name: qconfigs[kind] for name, kind in ours if kind in qconfigs} | qconfigs


def _not_inside_a_model(module: nn.Module) -> ValueError:
    return ValueError(
        problem(
            "torch quantises the modules inside a model, and would leave this one as it is",
            got=f"{type_name(module)} itself",
            expected="a model that contains it",
            fix="Wrap it: `quantize_dynamic(nn.Sequential(module))[0]`.",
        )
    )


def _as_torchs(model: nn.Module) -> list[Any]:
    """Give the drop-in modules inside `model` the classes that torch has for them."""
    changed = []
    for part in model.modules():
        kind = class_of_torchs(type(part)) if isinstance(part, DropIn) else None
        if kind is not None:
            # `nn.Module.__setattr__` would register it as an attribute of the module.
            object.__setattr__(part, "__class__", kind)
            changed.append(part)
    return changed
