"""Recurrent networks through time, on PyTorch.

`dynamic_rnn` runs any cell over batches of sequences, whatever their lengths; cells, unrolls, states and errors keep
the contract of TensorFlow's RNN functions. The import convention is `import throughtime as tt`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from throughtime._other_names import unknown_attribute

if TYPE_CHECKING:
    from throughtime import cells, decode, interop, nn, train
    from throughtime._errors import InvalidArgumentError
    from throughtime.cells import (
        BasicLSTMCell,
        BasicRNNCell,
        DeviceWrapper,
        DropoutWrapper,
        EmbeddingWrapper,
        GRUCell,
        InputProjectionWrapper,
        LSTMCell,
        LSTMStateTuple,
        MultiRNNCell,
        OutputProjectionWrapper,
        ResidualWrapper,
        RNNCell,
    )
    from throughtime.nn import accelerate
    from throughtime.runtime import backend, threads
    from throughtime.unroll import (
        RNN,
        TensorArray,
        bidirectional_dynamic_rnn,
        dynamic_rnn,
        explain,
        raw_rnn,
        stack_bidirectional_dynamic_rnn,
        stack_bidirectional_rnn,
        static_bidirectional_rnn,
        static_rnn,
        static_state_saving_rnn,
        while_loop,
    )

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
    "accelerate",
    "backend",
    "bidirectional_dynamic_rnn",
    "cells",
    "decode",
    "dynamic_rnn",
    "explain",
    "interop",
    "nn",
    "raw_rnn",
    "stack_bidirectional_dynamic_rnn",
    "stack_bidirectional_rnn",
    "static_bidirectional_rnn",
    "static_rnn",
    "static_state_saving_rnn",
    "threads",
    "train",
    "while_loop",
]


def _first_use(name: str) -> Any:
    """Import everything at the first use of a public name: `throughtime --help` does not wait for torch."""
    if name not in __all__:
        raise unknown_attribute(__name__, name)
    homes = [import_module(f"{__name__}.{part}") for part in ("_errors", "runtime", "cells", "unroll", "nn")]
    for public in __all__:
        home = next((home for home in homes if hasattr(home, public)), None)
        globals()[public] = import_module(f"{__name__}.{public}") if home is None else getattr(home, public)
    return globals()[name]


if not TYPE_CHECKING:
    # Type checkers would take any name for one of ours.
    __getattr__ = _first_use


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
