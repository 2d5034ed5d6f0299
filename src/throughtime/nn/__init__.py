"""Drop-in modules: `torch.nn`'s LSTM, GRU and RNN on our engine, and `accelerate` for models that have them."""

from throughtime.nn._accelerate import accelerate
from throughtime.nn._modules import GRU, LSTM, RNN
from throughtime.nn._other_names import __getattr__ as __getattr__  # type: ignore[attr-defined]

__all__ = ["GRU", "LSTM", "RNN", "accelerate"]
