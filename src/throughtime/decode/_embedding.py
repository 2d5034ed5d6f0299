"""From tokens to inputs, and what a token must be."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from throughtime._errors import InvalidArgumentError, problem, type_name
from throughtime._tensors import as_tensor
from throughtime.decode._integer_arguments import check_values_known, whole_numbers


class Lookup:
    """Looks tokens up in a table [V, E], or by a function such as `nn.Embedding`."""

    def __init__(self, embedding: Any) -> None:
        fix = "Pass torch.nn.Embedding(V, E), its weight, or a function of tokens."
        if not callable(embedding) or isinstance(embedding, type):
            if not isinstance(embedding, Tensor | np.ndarray):
                what, expected = "`embedding` is neither a table nor a function", "a tensor [V, E] or a callable"
                raise TypeError(problem(what, got=type_name(embedding), expected=expected, fix=fix))
            embedding = as_tensor("embedding", embedding)
            if embedding.ndim != 2 or not embedding.is_floating_point():
                what, expected = "`embedding` is no table of vectors", "a floating point [V, E]"
                raise ValueError(problem(what, got=type_name(embedding), expected=expected, fix=fix))
            check_values_known("embedding", embedding)
        self._embedding = embedding

    @property
    def device(self) -> torch.device | None:
        """Where the table lies, if that is known."""
        if isinstance(self._embedding, Tensor):
            return self._embedding.device
        if isinstance(self._embedding, nn.Module):
            return next((parameter.device for parameter in self._embedding.parameters()), None)
        return None

    @property
    def size(self) -> int | None:
        """V, if that is known: a function may take any token, and so may a class that inherits from torch's."""
        if isinstance(self._embedding, Tensor):
            return self._embedding.shape[0]
        return self._embedding.num_embeddings if type(self._embedding) is nn.Embedding else None

    def __call__(self, tokens: Tensor) -> Any:
        """The inputs for `tokens` [...]: [..., E]."""
        self.check("a token is", tokens, "Make the table as wide as the outputs.")
        if not isinstance(self._embedding, Tensor):
            return self._embedding(tokens)
        return functional.embedding(tokens, self._embedding)

    def check(self, what: str, tokens: Tensor, fix: str) -> None:
        """Raise unless all of `tokens` are in the table, as far as that is known."""
        size = self.size
        if size is not None and tokens.numel() and not 0 <= int(tokens.min()) <= int(tokens.max()) < size:
            what, got = f"{what} not in the table of embeddings", f"tokens {int(tokens.min())} to {int(tokens.max())}"
            raise InvalidArgumentError(problem(what, got=got, expected=f"0 to {size - 1}", fix=fix))


def check_start_tokens(tokens: Any, embedding: Lookup) -> Tensor:
    """The tokens that decoding starts from, int64 [B]."""
    fix = "Pass one token for each sequence, as in `torch.full((batch_size,), START)`."
    found = whole_numbers("start_tokens", tokens, 1, fix).to(embedding.device)
    embedding.check("`start_tokens` are", found, "Correct them, or make room in the table for the token to start from.")
    return found


def check_end_token(token: Any, embedding: Lookup) -> int:
    """The token that ends a sequence; -1, which is none, ends no sequence."""
    end = int(whole_numbers("end_token", token, 0, "Pass the number of the token that means the end."))
    size = embedding.size
    if end < -1 or (size is not None and end >= size):
        what, fix = (
            "`end_token` is no token",
            "Correct it, or pass -1 for sequences that end by `maximum_iterations` only.",
        )
        expected = "at least 0" if size is None else f"0 to {size - 1}"
        raise InvalidArgumentError(problem(what, got=end, expected=f"{expected}, or -1 for none", fix=fix))
    return end


def check_logits(outputs: Any) -> Tensor:
    """The outputs of a step, if they are one tensor of logits [B, ..., V]."""
    if not isinstance(outputs, Tensor):
        what, fix = "Expected outputs to be a single tensor", "Use a CustomHelper for outputs of another kind."
        raise TypeError(problem(what, got=type_name(outputs), expected="logits [B, V]", fix=fix))
    return outputs
