"""`accelerate`: torch's recurrent modules inside of a model become ours, where they are."""

from __future__ import annotations

import logging
import warnings
from typing import Any, TypeVar

import torch
from torch import nn

from throughtime._errors import problem, type_name
from throughtime.nn._class_map import (
    announces_without_dict,
    class_of_ours,
    own_method,
    torchs_base,
    without_parametrization,
)
from throughtime.nn._modules import DropIn
from throughtime.nn._quantization import show_torchs_classes

_NAMES = frozenset({"LSTM", "GRU", "RNN"})
_log = logging.getLogger("throughtime")

Module = TypeVar("Module", bound=nn.Module)

show_torchs_classes()


def accelerate(module: Module) -> Module:
    """Turn every `torch.nn.LSTM`, `GRU` and `RNN` inside `module`, or itself, into `tt.nn`'s; returns the same object.

    Only the class of each is changed. Parameters, hooks, names, the mode, and an optimiser that knows the parameters
    all stay; checkpoints of the model load as before, here and in torch. Subclasses of torch's are taken as long as
    they leave `forward` alone, or call `super().forward` in theirs. What cannot be changed without changing what it
    does (any other class, a replaced `forward`, quantized or scripted modules) is left alone, and a warning names it
    with the reason; so does one if there is nothing to change. What was changed goes to the logger "throughtime".

    >>> import torch, throughtime as tt
    >>> class Tagger(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.lstm, self.head = torch.nn.LSTM(8, 16, bidirectional=True), torch.nn.Linear(32, 3)
    ...     def forward(self, x):
    ...         return self.head(self.lstm(x)[0])
    >>> model = tt.accelerate(Tagger())
    >>> isinstance(model.lstm, tt.nn.LSTM), model(torch.randn(5, 2, 8)).shape
    (True, torch.Size([5, 2, 3]))
    """
    given: Any = module
    if not isinstance(given, nn.Module):
        fix = "Pass the model itself; a list of modules goes into a `torch.nn.ModuleList` first."
        raise TypeError(problem("`module` is no module", got=type_name(given), expected="a torch.nn.Module", fix=fix))
    changed, left, ours = [], [], 0
    for path, part in module.named_modules():
        name = f"{path or 'the module itself'} ({type(part).__name__})"
        if isinstance(part, DropIn):
            ours += 1
        elif _is_recurrent(part):
            reason = _reason_to_leave(part)
            if reason is None:
                # `nn.Module.__setattr__` would register it as an attribute of the module.
                object.__setattr__(part, "__class__", class_of_ours(type(part)))
                changed.append(name)
            else:
                left.append(f"{name}: {reason}")
    if changed:
        _log.info("accelerate: now run by throughtime: %s", ", ".join(changed))
    if left:
        warnings.warn(f"accelerate has left alone {'; '.join(left)}", UserWarning, stacklevel=2)
    elif not changed and not ours:
        what = f"accelerate has found no torch.nn.LSTM, GRU or RNN inside {type(module).__name__}"
        warnings.warn(f"{what}: nothing is changed", UserWarning, stacklevel=2)
    return module


def _is_recurrent(part: nn.Module) -> bool:
    """Whether a module is one of torch's, one of a user's made of it, or stands for one: quantized, scripted."""
    if isinstance(part, nn.RNNBase):
        return True
    name = part.original_name if isinstance(part, torch.jit.ScriptModule) else type(part).__name__
    return name in _NAMES and (isinstance(part, torch.jit.ScriptModule) or _is_of_torch(type(part)))


def _reason_to_leave(part: nn.Module) -> str | None:
    if isinstance(part, torch.jit.ScriptModule):
        return "it is compiled by torch.jit, which takes torch's own modules alone"
    if not isinstance(part, nn.RNNBase):
        return "it is quantized, with weights that are no parameters"
    kind = without_parametrization(type(part))
    own = "forward" if torchs_base(kind) is None else own_method(kind)
    if own is not None:
        name, fix = f"{kind.__module__}.{kind.__qualname__}", "let it inherit from throughtime.nn instead"
        return f"{name} is a class with a `{own}` of its own; {fix}"
    if announces_without_dict(kind):
        return "a class with an `__init_subclass__` and a first base without `__dict__` cannot be inherited from here"
    replaced = [name for name in ("forward", "check_forward_args", "permute_hidden") if name in vars(part)]
    if replaced:
        return f"its `{replaced[0]}` has been replaced"
    return None


def _is_of_torch(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "torch"
