"""Batch normalisation and local response normalisation."""

from __future__ import annotations

import torch

from throughtime.tf1.ops._helpers import plain
from throughtime.tf1.ops._table import Static, Tensor, operation


@operation("nn.batch_normalization", op_name="batchnorm")
def batch_normalization(
    x: Tensor, mean: Tensor, variance: Tensor, offset: Tensor | None, scale: Tensor | None, variance_epsilon: Static
) -> Tensor:
    """`x` less its mean, divided by its deviation, scaled and moved."""
    inverse = torch.rsqrt(variance + plain(variance_epsilon))
    inverse = inverse if scale is None else inverse * scale
    shift = -mean * inverse if offset is None else offset - mean * inverse
    return x * inverse + shift


@operation(
    "nn.batch_norm_with_global_normalization",
    op_name="batchnorm",
    spellings={"input": "t", "mean": "m", "variance": "v"},
    positional=(
        "t",
        "m",
        "v",
        "beta",
        "gamma",
        "variance_epsilon",
        "scale_after_normalization",
        "name",
        "input",
        "mean",
        "variance",
    ),
)
def batch_norm_with_global_normalization(
    t: Tensor,
    m: Tensor,
    v: Tensor,
    beta: Tensor,
    gamma: Tensor,
    variance_epsilon: Static,
    scale_after_normalization: Static,
) -> Tensor:
    """`t` less its mean, divided by its deviation."""
    inverse = torch.rsqrt(v + plain(variance_epsilon))
    inverse = inverse * gamma if scale_after_normalization else inverse
    return t * inverse + (beta - m * inverse)


@operation(
    "nn.fused_batch_norm",
    op_name="FusedBatchNorm",
    scope="FusedBatchNormV3",
    dtypes=lambda **given: [given["x"].dtype.base_dtype] * 3,
)
def fused_batch_norm(
    x: Tensor,
    scale: Tensor,
    offset: Tensor,
    mean: Tensor | None = None,
    variance: Tensor | None = None,
    epsilon: Static = 0.001,
    data_format: Static = "NHWC",
    is_training: Static = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """Batch normalisation of images: the result, and the mean and the unbiased variance of the batch."""
    first = data_format.startswith("NC")
    over = [0, 2, 3] if first else [0, 1, 2]
    shape = [1, -1, 1, 1] if first else [1, 1, 1, -1]
    if scale.shape[0] != x.shape[1 if first else 3]:
        raise ValueError(f"scale has {scale.shape[0]} elements for {x.shape[1 if first else 3]} channels")
    if not is_training:
        assert mean is not None
        assert variance is not None
        result = (x - mean.reshape(shape)) * torch.rsqrt(variance.reshape(shape) + epsilon)
        return result * scale.reshape(shape) + offset.reshape(shape), mean, variance
    center = x.mean(over)
    spread = torch.square(x - center.reshape(shape)).mean(over)
    result = (x - center.reshape(shape)) * torch.rsqrt(spread.reshape(shape) + epsilon)
    count = x.numel() // max(center.numel(), 1)
    return result * scale.reshape(shape) + offset.reshape(shape), center, spread * (count / max(count - 1, 1))


@operation("nn.local_response_normalization", op_name="LRN")
def local_response_normalization(
    input: Tensor,  # noqa: A002
    depth_radius: Static = 5,
    bias: Static = 1,
    alpha: Static = 1,
    beta: Static = 0.5,
) -> Tensor:
    """Channels divided by a power of the sum of squares of their neighbours."""
    radius = int(depth_radius)
    squares = torch.nn.functional.pad(input * input, [radius, radius]).unfold(-1, 2 * radius + 1, 1).sum(-1)
    return input / torch.pow(bias + alpha * squares, beta)
