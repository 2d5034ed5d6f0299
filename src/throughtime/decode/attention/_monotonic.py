"""Monotonic attention (Raffel et al. 2017): alignments that only ever move forward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from throughtime._errors import check_flag, check_number, problem, type_name
from throughtime._tensors import as_tensor
from throughtime.cells._rng import RandomModule
from throughtime.decode.attention._mechanisms import AttentionMechanism, BahdanauAttention, LuongAttention

MODES = ("recursive", "parallel", "hard")


def hardmax(logits: Any, name: str | None = None) -> Tensor:
    """1 at the largest of `logits` [..., S], 0 elsewhere; a `probability_fn` that looks at one place only.

    >>> import torch, throughtime as tt
    >>> tt.decode.hardmax(torch.tensor([[0.1, 0.7, 0.2]]))
    tensor([[0., 1., 0.]])
    """
    logits = as_tensor("logits", logits)
    if not logits.ndim or not logits.shape[-1] or not logits.is_floating_point():
        fix = "Pass at least a vector, of real numbers."
        raise ValueError(problem("`logits` must have an axis", got=type_name(logits), expected="[..., S]", fix=fix))
    return functional.one_hot(logits.argmax(-1), logits.shape[-1]).to(logits.dtype)


def safe_cumprod(x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False) -> Tensor:
    """The cumulative product of numbers in [0, 1], by logarithms, so that its gradient is finite at 0.

    >>> import torch, throughtime as tt
    >>> tt.decode.safe_cumprod(torch.tensor([0.5, 0.5, 0.5]), exclusive=True)
    tensor([1.0000, 0.5000, 0.2500])
    """
    x = as_tensor("x", x)
    if not x.is_floating_point():
        fix = "Convert it with `.float()`."
        raise TypeError(problem("`x` must be real", got=x.dtype, expected="a floating point dtype", fix=fix))
    flags = check_flag("exclusive", exclusive), check_flag("reverse", reverse)
    if isinstance(axis, bool) or not isinstance(axis, int) or not -x.ndim <= axis < x.ndim:
        fix = "Pass the number of an axis of `x`."
        raise ValueError(problem("`axis` is no axis", got=repr(axis), expected=f"-{x.ndim} to {x.ndim - 1}", fix=fix))
    return _cumulative(x.clamp(torch.finfo(x.dtype).tiny, 1).log(), axis, *flags).exp()


def _cumulative(x: Tensor, axis: int, exclusive: bool, reverse: bool) -> Tensor:
    """Cumulative sums, without each number itself if `exclusive`, from the end if `reverse`."""
    x = x.flip(axis) if reverse else x
    if exclusive:
        x = torch.cat([torch.zeros_like(x.narrow(axis, 0, 1)), x.narrow(axis, 0, x.shape[axis] - 1)], axis)
    x = x.cumsum(axis)
    return x.flip(axis) if reverse else x


def monotonic_attention(p_choose_i: Any, previous_attention: Any, mode: str) -> Tensor:
    """Where attention moves from `previous_attention` [B, S] if place i is chosen with probability `p_choose_i` [B, S].

    Mode "recursive" follows the definition place by place; "parallel" is the same by cumulative sums and products,
    faster and less exact where probabilities are near 1; "hard" expects probabilities 0 and 1, and attends to one
    place.

    >>> import torch, throughtime as tt
    >>> start = torch.tensor([[1.0, 0.0, 0.0]])
    >>> tt.decode.monotonic_attention(torch.tensor([[0.5, 0.5, 1.0]]), start, "recursive")
    tensor([[0.5000, 0.2500, 0.2500]])
    """
    p, previous = as_tensor("p_choose_i", p_choose_i), as_tensor("previous_attention", previous_attention)
    check_mode(mode)
    if p.ndim != 2 or p.shape != previous.shape:
        got, fix = f"{type_name(p)} and {type_name(previous)}", "Pass one number for each row and place."
        raise ValueError(problem("probabilities and attention must agree", got=got, expected="two [B, S]", fix=fix))
    if mode == "recursive":
        return _recursive(p, previous)
    if mode == "parallel":
        # Half precision has no room for the quotients.
        wide = p.to(torch.promote_types(p.dtype, torch.float32))
        skipped = safe_cumprod(1 - wide, axis=1, exclusive=True)
        return (wide * skipped * (previous / skipped.clamp(1e-10, 1.0)).cumsum(1)).to(p.dtype)
    # From where attention was, the first place that is chosen.
    p = p * previous.cumsum(1)
    return p * torch.cat([torch.ones_like(p[:, :1]), 1 - p[:, :-1]], 1).cumprod(1)


def _recursive(p: Tensor, previous: Tensor) -> Tensor:
    arrived = torch.zeros_like(p[:, 0])
    attention = []
    for chosen, here in zip(p.unbind(1), previous.unbind(1), strict=True):
        arrived = arrived + here
        attention.append(chosen * arrived)
        arrived = (1 - chosen) * arrived
    return torch.stack(attention, 1)


def check_mode(mode: Any) -> str:
    """`mode`, if it is one of the three."""
    if not isinstance(mode, str) or mode not in MODES:
        fix = 'Train with mode="parallel", and use mode="hard" afterwards if you like.'
        expected = "'recursive', 'parallel' or 'hard'"
        raise ValueError(problem("`mode` is unknown", got=repr(mode), expected=expected, fix=fix))
    return mode


class _Monotonic(RandomModule, AttentionMechanism):
    """What both monotonic mechanisms add: a bias and noise on the score, and probabilities that move forward."""

    unwatched = AttentionMechanism.unwatched | {"_generators"}

    def _setup_monotonic(self, noise: float, seed: int | None, score_bias_init: float, mode: str) -> None:
        self.sigmoid_noise = float(check_number("sigmoid_noise", noise, minimum=0))
        self.seed_with(seed, "sigmoid_noise_seed")
        self.mode = check_mode(mode)
        bias = torch.tensor(float(check_number("score_bias_init", score_bias_init)), dtype=self.dtype)
        with torch.inference_mode(False):
            self.attention_score_bias = nn.Parameter(bias)

    @property
    def sigmoid_noise_seed(self) -> int | None:
        """The seed of the noise; None for torch's own generator."""
        return self.seed

    def score(self, query: Tensor, keys: Tensor) -> Tensor:
        """The score that is not monotonic, plus a bias."""
        return super().score(query, keys) + self.attention_score_bias

    def initial_alignments(self, batch_size: int, dtype: torch.dtype) -> Tensor:
        """All attention at the first place."""
        alignments = super().initial_alignments(batch_size, dtype)
        alignments[:, 0] = 1
        return alignments

    def probabilities(self, score: Tensor, state: Tensor) -> Tensor:
        """Where attention goes from where it was."""
        if self.sigmoid_noise:
            noise = torch.randn(
                score.shape, dtype=score.dtype, device=score.device, generator=self.generator(score.device)
            )
            score = score + self.sigmoid_noise * noise
        chosen = (score > 0).to(score.dtype) if self.mode == "hard" else torch.sigmoid(score)
        return monotonic_attention(chosen, state, self.mode)


class BahdanauMonotonicAttention(_Monotonic, BahdanauAttention):
    """Monotonic attention with the additive score of `BahdanauAttention`, plus `attention_score_bias`.

    `sigmoid_noise` is the size of the noise added to the score, which teaches it to be sure of itself; set it to 0
    when training is over. A negative `score_bias_init` lets attention move far at the start.

    >>> import torch, throughtime as tt
    >>> attention = tt.decode.BahdanauMonotonicAttention(4, torch.randn(1, 3, 2), mode="hard")
    >>> attention.initial_alignments(1, torch.float32)
    tensor([[1., 0., 0.]])
    """

    def __init__(
        self,
        num_units: int,
        memory: Any = None,
        memory_sequence_length: Any = None,
        normalize: bool = False,
        score_mask_value: float | None = None,
        sigmoid_noise: float = 0.0,
        sigmoid_noise_seed: int | None = None,
        score_bias_init: float = 0.0,
        mode: str = "parallel",
        dtype: torch.dtype | None = None,
        name: str | None = "BahdanauMonotonicAttention",
        *,
        memory_size: int | None = None,
    ) -> None:
        super().__init__(
            num_units,
            memory,
            memory_sequence_length,
            normalize,
            score_mask_value=score_mask_value,
            dtype=dtype,
            name=name,
            memory_size=memory_size,
        )
        self._setup_monotonic(sigmoid_noise, sigmoid_noise_seed, score_bias_init, mode)


class LuongMonotonicAttention(_Monotonic, LuongAttention):
    """Monotonic attention with the multiplicative score of `LuongAttention`, plus `attention_score_bias`.

    The arguments are those of `BahdanauMonotonicAttention`, with `scale` in the place of `normalize`.

    >>> import torch, throughtime as tt
    >>> attention = tt.decode.LuongMonotonicAttention(4, torch.randn(1, 3, 2), scale=True)
    >>> attention.initial_alignments(1, torch.float32)
    tensor([[1., 0., 0.]])
    """

    def __init__(
        self,
        num_units: int,
        memory: Any = None,
        memory_sequence_length: Any = None,
        scale: bool = False,
        score_mask_value: float | None = None,
        sigmoid_noise: float = 0.0,
        sigmoid_noise_seed: int | None = None,
        score_bias_init: float = 0.0,
        mode: str = "parallel",
        dtype: torch.dtype | None = None,
        name: str | None = "LuongMonotonicAttention",
        *,
        memory_size: int | None = None,
    ) -> None:
        super().__init__(
            num_units,
            memory,
            memory_sequence_length,
            scale,
            score_mask_value=score_mask_value,
            dtype=dtype,
            name=name,
            memory_size=memory_size,
        )
        self._setup_monotonic(sigmoid_noise, sigmoid_noise_seed, score_bias_init, mode)
