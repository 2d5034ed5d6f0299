"""Names that torch, Keras and TensorFlow have in other places: an unknown attribute says where to look."""

from __future__ import annotations

from importlib import import_module

_CELLS = "Cells are `tt.LSTMCell` and the like, more are in `tt.cells`; unrolls are `tt.dynamic_rnn` and the like."
_ADVICE = {
    **dict.fromkeys(("rnn_cell", "contrib", "rnn", "keras", "layers"), _CELLS),
    "SimpleRNN": "It is `tt.nn.RNN`, as torch has it.",
    **dict.fromkeys(("seq2seq", "addons"), "Decoders, attention and beam search are in `tt.decode`."),
    "StackedRNNCells": "Stack cells with `tt.MultiRNNCell`.",
    "SimpleRNNCell": "It is `tt.BasicRNNCell`.",
    "Bidirectional": "Use `tt.bidirectional_dynamic_rnn`.",
    "compile": "Cells are compiled by `tt.dynamic_rnn` itself; `torch.compile` takes models that call it.",
    "set_backend": "Use `with tt.backend(name):`.",
}
_PLACES = ("", ".cells", ".decode", ".train", ".interop", ".nn")


def unknown_attribute(module: str, name: str) -> AttributeError:
    """The error for a name that a module of this package does not have."""
    message = f"module {module!r} has no attribute {name!r}"
    # Names that begin so are asked for by tools, which expect nothing.
    advice = "" if name.startswith("_") else _place_of(name) or _ADVICE.get(name, "")
    return AttributeError(f"{message}. {advice}" if advice else message, name=name)


def _place_of(name: str) -> str:
    package = __name__.partition(".")[0]
    for place in _PLACES:
        if name in import_module(package + place).__all__:
            return f"It is `tt{place}.{name}`."
    return ""
