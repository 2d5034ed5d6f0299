"""Recurrent networks through time, on PyTorch.

`dynamic_rnn` runs any cell over batches of sequences, whatever their lengths; cells, unrolls, states and errors keep
the contract of TensorFlow's RNN functions. The import convention is `import throughtime as tt`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from throughtime._public import *

__version__ = "0.1.0"

__all__ = [
    "RNN",
    "BasicLSTMCell",
    "BasicRNNCell",
    "DeviceWrapper",
    "DropoutWrapper",
    "EmbeddingWrapper",
    "GRUCell",
    "InputProjectionWrapper",
    "InvalidArgumentError",
    "LSTMCell",
    "LSTMStateTuple",
    "MultiRNNCell",
    "OutputProjectionWrapper",
    "RNNCell",
    "ResidualWrapper",
    "TensorArray",
    "backend",
    "bidirectional_dynamic_rnn",
    "cells",
    "decode",
    "dynamic_rnn",
    "explain",
    "interop",
    "raw_rnn",
    "stack_bidirectional_dynamic_rnn",
    "stack_bidirectional_rnn",
    "static_bidirectional_rnn",
    "static_rnn",
    "static_state_saving_rnn",
    "train",
    "while_loop",
]


def __getattr__(name: str) -> Any:
    """Import everything at the first use of a public name: `throughtime --help` does not wait for torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from throughtime import _public  # noqa: PLC0415 (the point of it)

    globals().update({public: getattr(_public, public) for public in __all__})
    return globals()[name]


def __dir__() -> list[str]:
    return [*globals(), *__all__]
