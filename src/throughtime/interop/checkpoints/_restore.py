"""From a checkpoint into parameters: everything is checked and read before anything is changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from throughtime._errors import check_flag, problem
from throughtime._tensors import is_lazy
from throughtime._text import plural
from throughtime.interop.checkpoints._checkpoint import TFCheckpoint, nearest
from throughtime.interop.checkpoints._dtypes import by_name
from throughtime.interop.checkpoints._matching import Match, match, names_in, other_scopes
from throughtime.interop.checkpoints._parameter_names import ParameterSlot, Targets, targets
from throughtime.interop.checkpoints._shape_checks import misfits

# Lines of a message; of more, how many there are.
_MOST = 12


@dataclass(frozen=True)
class Restored:
    """What `load_tf_checkpoint` did.

    `loaded` has the name of every variable that was loaded, and what it is called in the checkpoint. The rest are names
    that were left alone: `missing` ones of ours and `unexpected` ones in our scopes (both only with `strict=False`),
    those of an `optimizer` (slots and counters), and `unused` ones of other parts of the model.

    >>> import throughtime as tt
    >>> print(tt.interop.Restored({"rnn/gru_cell/gates/bias": "rnn/gru_cell/gates/biases"}, optimizer=["global_step"]))
    1 variable loaded; left alone: 1 of the optimizer (global_step)
    """

    loaded: dict[str, str]
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    optimizer: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kinds = {
            "missing": self.missing,
            "unexpected": self.unexpected,
            "of the optimizer": self.optimizer,
            "of other parts": self.unused,
        }
        rest = [f"{len(names)} {kind} ({_some(names)})" for kind, names in kinds.items() if names]
        loaded = f"{plural(len(self.loaded), 'variable')} loaded"
        return f"{loaded}; left alone: {', '.join(rest)}" if rest else loaded


def load_tf_checkpoint(target: Any, checkpoint: Any, scope: str | None = None, *, strict: bool = True) -> Restored:
    """Load a TensorFlow checkpoint's variables into a cell or a model, by their names; TensorFlow is not needed.

    Weights are as they are there, without reordering. A cell that is not built yet learns the width of its inputs from
    them. Names from before TensorFlow 1.2 (`weights`, `biases`) and 1.0 (`RNN/BasicLSTMCell/Linear/Matrix`) are
    understood, and so are those of variables in a checkpoint of objects (`tf.train.Checkpoint`). What optimisers keep
    is left alone.

    All of it is checked before anything is changed. What was computed from earlier weights stays as it was: give an
    attention its memory after loading. The dtype of a parameter must hold every number of the variable:
    make a cell for float64 weights with `dtype=torch.float64`.

    Args:
        target: A cell, or a `tt.RNN`; or a dict of the parts of a model by their scopes, where a part is one of these,
            a `torch.nn.Linear` or a convolution (`kernel` and `bias`, with TensorFlow's order of axes), any other
            module (its parameters by their own names, with such layers inside of it), or a tensor (the variable of
            that very name). Layers of torch whose layout TensorFlow does not have, as `torch.nn.LSTM`, are refused.
        checkpoint: What `tf.train.Saver.save` returned, a folder with a latest checkpoint, or a `TFCheckpoint`.
        scope: The scope of the unroll; None takes that of the cell's first unroll, or "rnn". "" is for a cell that was
            called by itself. Before the names of a dict it is an outer scope.
        strict: Whether to refuse a checkpoint without a variable for every parameter, or with more of them in the same
            scopes.

    >>> import tempfile, torch, throughtime as tt
    >>> path = f"{tempfile.mkdtemp()}/model.ckpt"
    >>> trained = tt.LSTMCell(4, input_size=3), tt.LSTMCell(4, input_size=3)
    >>> _ = tt.interop.save_tf_checkpoint(dict(zip(["fw", "bw"], trained)), path, "bidirectional_rnn")
    >>> forwards, backwards = tt.LSTMCell(4), tt.LSTMCell(4)
    >>> print(tt.interop.load_tf_checkpoint({"fw": forwards, "bw": backwards}, path, "bidirectional_rnn"))
    4 variables loaded
    >>> torch.equal(backwards.kernel, trained[1].kernel)
    True
    """
    wanted, strict = targets(target, scope), check_flag("strict", strict)
    source = checkpoint if isinstance(checkpoint, TFCheckpoint) else TFCheckpoint(checkpoint)
    matched = match(wanted.places, wanted.scopes, source)
    coming = {name: source.variables[key] for name, key in matched.found.items()}
    wrong = misfits(wanted, coming, {name: by_name(variable.dtype) for name, variable in coming.items()})
    if wrong or (strict and (matched.missing or matched.unexpected)):
        raise ValueError(_does_not_fit(wanted, source, matched, wrong))
    values: dict[str, Any] = {name: source[key] for name, key in matched.found.items()}
    for name, value in values.items():
        _assign(wanted.places[name], value)
    return Restored(matched.found, matched.missing, matched.unexpected, matched.optimizer, matched.unused)


def _assign(place: ParameterSlot, value: Tensor) -> None:
    parameter: Any = place.parameter
    value = place.in_torch(value)
    with torch.inference_mode(False), torch.no_grad():
        if is_lazy(parameter):
            parameter.materialize(value.shape)
        parameter.copy_(value)


def _does_not_fit(wanted: Targets, source: TFCheckpoint, matched: Match, wrong: list[str]) -> str:
    """What is missing, what is too much and what does not fit, and the likeliest way out."""
    names = names_in(source)
    lines = [f"missing: {name}{_near(name, names)}" for name in matched.missing]
    lines += [f"unexpected: {name}" for name in matched.unexpected]
    lines += [f"does not fit: {line}" for line in wrong]
    counts = [
        (len(matched.missing), "missing"),
        (len(matched.unexpected), "unexpected"),
        (len(wrong), "of another shape or dtype"),
    ]
    got = ", ".join(f"{count} {kind}" for count, kind in counts if count)
    what, expected = f"{source.prefix} does not fit {wanted.called}", "a variable for every parameter, and no other"
    shown = lines[:_MOST] + ([f"and {len(lines) - _MOST} more"] if len(lines) > _MOST else [])
    said = problem(what, got=got, expected=expected, fix=_way_out(wanted, source, matched))
    return "\n  ".join([said, *shown])


def _near(name: str, names: dict[str, str]) -> str:
    near = nearest(name, names)
    return f" (the nearest: {near[0]})" if near else ""


def _way_out(wanted: Targets, source: TFCheckpoint, matched: Match) -> str:
    """What to do: for a scope that is another, say which."""
    names = list(names_in(source))
    if any("recurrent_kernel" in name for name in names):
        return (
            "It has layers of Keras, whose kernels are in two parts, with gates in another order: those are not read."
        )
    if any(name.endswith("opaque_kernel") for name in names):
        return "It has CudnnLSTM's opaque weights, which only TensorFlow can take apart: save CudnnCompatible cells."
    if len(wanted.scopes) == 1 and matched.missing:
        scopes = other_scopes(list(wanted.places), wanted.scopes[0], source)
        if scopes:
            return f"Pass {' or '.join(f'scope={scope!r}' for scope in scopes)}."
    if matched.missing:
        return "Scopes and the `name=` of a cell are parts of names; `strict=False` leaves what is missing as it is."
    if matched.unexpected:
        return "Make the cell as the saved one was made; `strict=False` loads what has a place."
    return "Make the cell as the saved one was made."


def _some(names: list[str]) -> str:
    return f"{names[0]}, ..." if len(names) > 1 else names[0]
