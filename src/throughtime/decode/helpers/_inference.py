"""Helpers for use: every input comes from the outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from throughtime._errors import check_callable, check_dtype, problem, shape_of
from throughtime._tensors import as_tensor
from throughtime.decode._embedding import Lookup, check_end_token, check_logits, check_start_tokens
from throughtime.decode._integer_arguments import check_values_known, row_shape
from throughtime.decode.helpers._helper import Helper
from throughtime.decode.helpers._sampling import Chance, check_temperature, check_top_k, check_top_p, narrowed


class GreedyEmbeddingHelper(Helper):
    """Feeds back the embedding of the most likely token, until that is the end token.

    Args:
        embedding: A table [V, E], or a function of tokens such as `nn.Embedding`.
        start_tokens: The tokens to start from, [B].
        end_token: The token that ends a sequence; -1 for none.

    >>> import torch, throughtime as tt
    >>> helper = tt.decode.GreedyEmbeddingHelper(torch.eye(3), start_tokens=[1, 1], end_token=0)
    >>> helper.sample(0, torch.tensor([[0.0, 0.5, 0.1], [3.0, 0.5, 0.1]]), None)
    tensor([1, 0])
    """

    def __init__(self, embedding: Any, start_tokens: Any, end_token: Any) -> None:
        self._embedding = Lookup(embedding)
        self._start_tokens = check_start_tokens(start_tokens, self._embedding)
        self._end_token = check_end_token(end_token, self._embedding)

    @property
    def batch_size(self) -> int:
        """B, as many as there are start tokens."""
        return len(self._start_tokens)

    @property
    def sample_ids_shape(self) -> torch.Size:
        """One token."""
        return torch.Size([])

    @property
    def sample_ids_dtype(self) -> torch.dtype:
        """`torch.int64`."""
        return torch.int64

    def initialize(self, name: str | None = None) -> tuple[Tensor, Any]:
        """The embeddings of the start tokens; no row has ended."""
        return torch.zeros_like(self._start_tokens, dtype=torch.bool), self._embedding(self._start_tokens)

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Tensor:
        """The most likely tokens."""
        return check_logits(outputs).argmax(-1)

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Tensor, name: str | None = None
    ) -> tuple[Tensor, Any, Any]:
        """The embeddings of the samples; a row ends with its end token."""
        return sample_ids == self._end_token, self._embedding(sample_ids), state


class SampleEmbeddingHelper(GreedyEmbeddingHelper):
    """Feeds back the embedding of a random token, as likely as the outputs say, until that is the end token.

    Args:
        embedding: A table [V, E], or a function of tokens such as `nn.Embedding`.
        start_tokens: The tokens to start from, [B].
        end_token: The token that ends a sequence; -1 for none.
        softmax_temperature: Divides the logits: below 1 likely tokens become likelier. None is 1.
        seed: Makes the tokens reproducible.
        top_k: Choose among the k most likely tokens only.
        top_p: Choose among the most likely tokens that together have this probability.
        generator: Where random numbers come from, in the place of `seed`.

    >>> import torch, throughtime as tt
    >>> helper = tt.decode.SampleEmbeddingHelper(torch.eye(3), [1, 1], end_token=0, seed=1, top_k=2)
    >>> tokens = [helper.sample(0, torch.tensor([[0.0, 1.0, 1.1]] * 2), None) for _ in range(20)]
    >>> sorted(set(torch.cat(tokens).tolist()))
    [1, 2]
    """

    def __init__(
        self,
        embedding: Any,
        start_tokens: Any,
        end_token: Any,
        softmax_temperature: Any = None,
        seed: int | None = None,
        *,
        top_k: int | None = None,
        top_p: float | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(embedding, start_tokens, end_token)
        self._temperature = check_temperature(softmax_temperature)
        self._top_k, self._top_p = check_top_k(top_k), check_top_p(top_p)
        self._tokens = Chance("seed", seed, generator)

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Tensor:
        """Random tokens."""
        logits = check_logits(outputs)
        if self._temperature is not None:
            logits = logits / self._temperature
        return self._tokens.categorical(narrowed(logits, self._top_k, self._top_p))


class InferenceHelper(Helper):
    """Feeds back what a function makes of the outputs, for outputs that are no tokens.

    Args:
        sample_fn: Samples from the outputs of a step.
        sample_shape: The shape of a row of samples.
        sample_dtype: Their dtype.
        start_inputs: The inputs of the first step, [B, ...].
        end_fn: Which rows end with these samples: bool [B].
        next_inputs_fn: Makes inputs of samples; None takes samples as they are.

    >>> import torch, throughtime as tt
    >>> helper = tt.decode.InferenceHelper(
    ...     lambda outputs: outputs, [2], torch.float32, torch.zeros(3, 2), lambda samples: samples[:, 0] > 0
    ... )
    >>> finished, inputs, _ = helper.next_inputs(0, None, None, torch.eye(3)[:, :2])
    >>> finished.tolist()
    [True, False, False]
    """

    def __init__(
        self,
        sample_fn: Callable[[Any], Tensor],
        sample_shape: Any,
        sample_dtype: torch.dtype,
        start_inputs: Any,
        end_fn: Callable[[Tensor], Tensor],
        next_inputs_fn: Callable[[Tensor], Any] | None = None,
    ) -> None:
        functions = {"sample_fn": sample_fn, "end_fn": end_fn, "next_inputs_fn": next_inputs_fn}
        for name, function in functions.items():
            if function is not None or name != "next_inputs_fn":
                check_callable(name, function, expected="a function", fix=f"Pass {name}=function.")
        self._sample_fn, self._end_fn, self._next_inputs_fn = sample_fn, end_fn, next_inputs_fn
        self._shape = row_shape("sample_shape", sample_shape)
        self._dtype = check_dtype("sample_dtype", sample_dtype)
        self._start_inputs = as_tensor("start_inputs", start_inputs)
        check_values_known("start_inputs", self._start_inputs)
        if not self._start_inputs.ndim:
            got, fix = shape_of(self._start_inputs), "Give one row for each sequence."
            raise ValueError(problem("`start_inputs` have no rows", got=got, expected="[B, ...]", fix=fix))

    @property
    def batch_size(self) -> int:
        """B, as many as the start inputs have rows."""
        return self._start_inputs.shape[0]

    @property
    def sample_ids_shape(self) -> torch.Size:
        """As it was given."""
        return self._shape

    @property
    def sample_ids_dtype(self) -> torch.dtype:
        """As it was given."""
        return self._dtype

    def initialize(self, name: str | None = None) -> tuple[Tensor, Any]:
        """The start inputs; no row has ended."""
        return torch.zeros(self.batch_size, dtype=torch.bool, device=self._start_inputs.device), self._start_inputs

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Tensor:
        """What `sample_fn` makes of the outputs."""
        return self._sample_fn(outputs)

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Tensor, name: str | None = None
    ) -> tuple[Tensor, Any, Any]:
        """What `next_inputs_fn` makes of the samples; `end_fn` says which rows end."""
        inputs = sample_ids if self._next_inputs_fn is None else self._next_inputs_fn(sample_ids)
        return self._end_fn(sample_ids), inputs, state
