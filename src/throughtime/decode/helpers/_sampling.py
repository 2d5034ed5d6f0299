"""Random tokens: temperature, the k most likely, the most likely that make up p."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from throughtime._errors import check_number, check_positive_int, problem, type_name


class Chance:
    """Where random numbers come from: a seed, a generator, or torch's own generator."""

    def __init__(self, name: str, seed: Any = None, generator: Any = None) -> None:
        if seed is not None and generator is not None:
            what, fix = f"only one of `{name}` and `generator` can be given", "Leave one out."
            raise ValueError(problem(what, got="both", expected="one of the two", fix=fix))
        if generator is not None and not isinstance(generator, torch.Generator):
            fix = "Pass torch.Generator().manual_seed(0), or a seed."
            raise TypeError(
                problem("`generator` is none", got=type_name(generator), expected="a torch.Generator", fix=fix)
            )
        self._seed = None if seed is None else check_positive_int(name, seed, minimum=0)
        self._generator: torch.Generator | None = generator

    def on(self, device: torch.device) -> torch.Generator | None:
        """The generator for a device; None is torch's own."""
        if self._seed is not None and self._generator is None:
            self._generator = torch.Generator(device).manual_seed(self._seed)
        return self._generator

    def bernoulli(self, probability: Any, rows: int, device: torch.device) -> Tensor:
        """Truth values [rows], each true with its probability."""
        uniform = torch.rand(rows, generator=self.on(device), device=device)
        return uniform < torch.as_tensor(probability, dtype=uniform.dtype, device=device)

    def categorical(self, logits: Tensor) -> Tensor:
        """One index for each row of `logits` [..., V], as likely as its softmax."""
        # Half precision is too coarse for the tail of a distribution.
        probabilities = torch.softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)), -1)
        try:
            drawn = torch.multinomial(probabilities.flatten(0, -2), 1, generator=self.on(logits.device))
        except RuntimeError as error:
            if probabilities.isfinite().all():
                raise
            what, fix = "there is nothing to draw from", "Look for NaN in the model, or raise the temperature."
            raise ValueError(problem(what, got="NaN or Inf as logits", expected="numbers", fix=fix)) from error
        return drawn.view(logits.shape[:-1])


def check_temperature(value: Any) -> Any:
    """None, or a temperature above 0."""
    if value is None:
        return None
    value = check_number("softmax_temperature", value, minimum=0)
    if not isinstance(value, Tensor) and value == 0:
        fix = "Use GreedyEmbeddingHelper for the most likely token."
        raise ValueError(problem("`softmax_temperature` is zero", got=value, expected="a number above 0", fix=fix))
    return value


def check_top_k(value: Any) -> int | None:
    """None, or how many tokens to choose from."""
    return None if value is None else check_positive_int("top_k", value)


def check_top_p(value: Any) -> float | None:
    """None, or the probability that the chosen tokens make up."""
    if value is None:
        return None
    share = float(check_number("top_p", value))
    if not 0 < share <= 1:
        fix = "Pass a probability such as 0.9."
        raise ValueError(problem("`top_p` is no probability", got=share, expected="0 < top_p <= 1", fix=fix))
    return share


def narrowed(logits: Tensor, top_k: int | None, top_p: float | None) -> Tensor:
    """`logits` [..., V] with minus infinity for tokens that are not to be drawn.

    Of the `top_k` most likely tokens those stay that it takes to make up `top_p`; the most likely always does.
    """
    count = logits.shape[-1] if top_k is None else min(top_k, logits.shape[-1])
    share = 1.0 if top_p is None else top_p
    if count == logits.shape[-1] and share >= 1:
        return logits
    # Of several that are as likely, the first come first.
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    beyond = torch.arange(logits.shape[-1], device=logits.device).expand_as(order) >= count
    if share < 1:
        probabilities = torch.softmax(ordered.masked_fill(beyond, -torch.inf), -1)
        # A token goes if those before it make up enough already.
        beyond = beyond | (probabilities.cumsum(-1) - probabilities >= share)
        beyond[..., 0] = False
    return logits.masked_fill(torch.zeros_like(beyond).scatter(-1, order, beyond), -torch.inf)
