"""Fourier and cosine transforms, frames, windows, spectrograms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from throughtime.tf1._namespace import exported
from throughtime.tf1.graph._dtypes import float32
from throughtime.tf1.ops._helpers import as_list, plain, torch_dtype, unary
from throughtime.tf1.ops._table import Static, Tensor, ints, operation


def _complex(name: str, op_name: str, function: Callable[..., Tensor], rank: int) -> None:
    over = tuple(range(-rank, 0))
    doc = (
        f"The {'inverse ' if name.startswith('i') else ''}Fourier transform over {rank} ax{'i' if rank == 1 else 'e'}s."
    )
    unary(name, op_name, lambda x: function(x, dim=over), doc, argument="input")


for _rank, _suffix in ((1, ""), (2, "2d"), (3, "3d")):
    _complex(f"fft{_suffix}", f"FFT{_suffix.upper()}", torch.fft.fftn, _rank)
    _complex(f"ifft{_suffix}", f"IFFT{_suffix.upper()}", torch.fft.ifftn, _rank)


def _real(name: str, op_name: str, function: Callable[..., Tensor], rank: int) -> None:
    def kernel(input_tensor: Tensor, fft_length: Static = None) -> Tensor:
        over = tuple(range(-rank, 0))
        return function(input_tensor, s=None if fft_length is None else ints(fft_length), dim=over)

    kernel.__doc__ = (
        f"The {'inverse ' if name.startswith('i') else ''}Fourier transform of real numbers over {rank} axes."
    )
    operation(f"signal.{name}", op_name=op_name, scope=name)(kernel)


for _rank, _suffix in ((1, ""), (2, "2d"), (3, "3d")):
    _real(f"rfft{_suffix}", f"RFFT{_suffix.upper()}", torch.fft.rfftn, _rank)
    _real(f"irfft{_suffix}", f"IRFFT{_suffix.upper()}", torch.fft.irfftn, _rank)


def _cosines(kind: int, size: int, dtype: torch.dtype) -> Tensor:
    """The matrix `[frequency, time]` of a cosine transform."""
    k = torch.arange(size, dtype=torch.float64).unsqueeze(1)
    n = torch.arange(size, dtype=torch.float64)
    if kind == 1:
        table = 2 * torch.cos(math.pi * k * n / (size - 1))
        table[:, 0], table[:, -1] = 1, torch.cos(math.pi * k[:, 0])
    elif kind == 2:
        table = 2 * torch.cos(math.pi * k * (2 * n + 1) / (2 * size))
    else:
        table = 2 * torch.cos(math.pi * n * (2 * k + 1) / (2 * size))
        table[:, 0] = 1
    return table.to(dtype)


def _scaled(table: Tensor, kind: int) -> Tensor:
    size = len(table)
    scale = torch.full((size,), math.sqrt(0.5 / size), dtype=table.dtype)
    scale[0] *= math.sqrt(0.5) if kind == 2 else math.sqrt(2)
    return table * (scale.unsqueeze(1) if kind == 2 else scale)


def _transform(x: Tensor, kind: int, norm: Any) -> Tensor:
    size = x.shape[-1]
    if x.is_meta:
        return torch.empty_like(x)
    table = _cosines(kind, size, x.dtype)
    return x @ (_scaled(table, kind) if norm == "ortho" else table).mT


@operation("signal.dct", op_name="dct", scope="dct")
def dct(input: Tensor, type: Static = 2, n: Static = None, axis: Static = -1, norm: Static = None) -> Tensor:  # noqa: A002
    """The cosine transform of type 1, 2 or 3 along the last axis."""
    return _transform(_cut(input, n), type, norm)


@operation("signal.idct", op_name="idct", scope="idct")
def idct(input: Tensor, type: Static = 2, n: Static = None, axis: Static = -1, norm: Static = None) -> Tensor:  # noqa: A002
    """The inverse cosine transform, not scaled unless `norm` is "ortho"."""
    return _transform(_cut(input, n), {1: 1, 2: 3, 3: 2}[type], norm)


def _cut(x: Tensor, size: Any) -> Tensor:
    return x if size is None else torch.nn.functional.pad(x, [0, max(size - x.shape[-1], 0)])[..., :size]


def _window(name: str, alpha: float, beta: float) -> Callable[..., Any]:
    def kernel(window_length: Static, periodic: Static = True, dtype: Static = float32) -> Tensor:
        size = int(plain(window_length))
        even = 1 - size % 2
        steps = size + (even if periodic else 0) - 1
        angle = 2 * math.pi * torch.arange(size, dtype=torch_dtype(dtype)) / max(steps, 1)
        return alpha - beta * torch.cos(angle)

    kernel.__doc__ = f"A {name.title()} window."
    return operation(f"signal.{name}_window", op_name=f"{name}_window", differentiable=False)(kernel)


hann_window = _window("hann", 0.5, 0.5)
hamming_window = _window("hamming", 0.54, 0.46)


def _framed(x: Tensor, length: int, step: int, pad_end: bool, value: float = 0) -> Tensor:
    if pad_end:
        count = -(-x.shape[-1] // step)
        x = torch.nn.functional.pad(x, [0, max((count - 1) * step + length - x.shape[-1], 0)], value=value)
    return x.unfold(-1, length, step)


@operation("signal.frame", op_name="frame", scope="frame")
def frame(
    signal: Tensor,
    frame_length: Static,
    frame_step: Static,
    pad_end: Static = False,
    pad_value: Static = 0,
    axis: Static = -1,
) -> Tensor:
    """Overlapping parts of a signal along a new last axis."""
    return _framed(signal.movedim(axis, -1), int(frame_length), int(frame_step), bool(pad_end), plain(pad_value))


@operation("signal.overlap_and_add", op_name="overlap_and_add", scope="overlap_and_add")
def overlap_and_add(signal: Tensor, frame_step: Static) -> Tensor:
    """The sum of overlapping parts `[…, frames, length]`."""
    return _overlapped(signal, int(plain(frame_step)))


def _overlapped(signal: Tensor, step: int) -> Tensor:
    frames, length = signal.shape[-2:]
    size = (frames - 1) * step + length
    flat = signal.reshape(-1, frames, length).mT
    found = torch.nn.functional.fold(flat, (1, size), (1, length), stride=(1, step))
    return found.reshape(*signal.shape[:-2], size)


def _next_power(size: int) -> int:
    return 1 << (size - 1).bit_length()


@operation("signal.stft", op_name="stft", scope="stft")
def _stft(
    signals: Tensor,
    window: Tensor | None,
    frame_length: Static,
    frame_step: Static,
    fft_length: Static,
    pad_end: Static,
) -> Tensor:
    """The Fourier transforms of overlapping parts of a signal."""
    parts = _framed(signals, frame_length, frame_step, pad_end)
    return torch.fft.rfft(parts if window is None else parts * window, fft_length)


@exported("signal.stft", "contrib.signal.stft")
def stft(
    signals: Any,
    frame_length: int,
    frame_step: int,
    fft_length: int | None = None,
    window_fn: Any = hann_window,
    pad_end: bool = False,
    name: str | None = None,
) -> Any:
    """The Fourier transforms of overlapping parts of a signal, each multiplied with a window."""
    window = None if window_fn is None else window_fn(frame_length, dtype=float32)
    return _stft(signals, window, frame_length, frame_step, fft_length or _next_power(frame_length), pad_end, name=name)


@operation("signal.inverse_stft", op_name="inverse_stft", scope="inverse_stft")
def _inverse_stft(
    stfts: Tensor, window: Tensor | None, frame_length: Static, frame_step: Static, fft_length: Static
) -> Tensor:
    """A signal of the Fourier transforms of its overlapping parts."""
    parts = _cut(torch.fft.irfft(stfts, fft_length), frame_length)
    return _overlapped(parts if window is None else parts * window, frame_step)


@exported("signal.inverse_stft", "contrib.signal.inverse_stft")
def inverse_stft(
    stfts: Any,
    frame_length: int,
    frame_step: int,
    fft_length: int | None = None,
    window_fn: Any = hann_window,
    name: str | None = None,
) -> Any:
    """A signal of the Fourier transforms of its overlapping parts, each multiplied with a window."""
    window = None if window_fn is None else window_fn(frame_length, dtype=float32)
    return _inverse_stft(stfts, window, frame_length, frame_step, fft_length or _next_power(frame_length), name=name)


_MEL_BREAK, _MEL_FACTOR = 700.0, 1127.0


def _mel(hertz: Tensor) -> Tensor:
    return _MEL_FACTOR * torch.log1p(hertz / _MEL_BREAK)


@operation(
    "signal.linear_to_mel_weight_matrix",
    op_name="linear_to_mel_weight_matrix",
    scope="linear_to_mel_weight_matrix",
    differentiable=False,
)
def linear_to_mel_weight_matrix(
    num_mel_bins: Static = 20,
    num_spectrogram_bins: Static = 129,
    sample_rate: Static = 8000,
    lower_edge_hertz: Static = 125.0,
    upper_edge_hertz: Static = 3800.0,
    dtype: Static = float32,
) -> Tensor:
    """The matrix `[spectrogram bins, mel bins]` of overlapping triangles on the mel scale."""
    kind = torch_dtype(dtype)
    bins = _mel(torch.linspace(0.0, plain(sample_rate) / 2, num_spectrogram_bins, dtype=kind)[1:]).unsqueeze(1)
    low, high = (_mel(torch.tensor(float(edge), dtype=kind)) for edge in (lower_edge_hertz, upper_edge_hertz))
    steps = torch.arange(num_mel_bins + 2, dtype=kind) / (num_mel_bins + 1)
    edges = low + (high - low) * steps
    rising = (bins - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - bins) / (edges[2:] - edges[1:-1])
    return torch.nn.functional.pad(torch.clamp(torch.minimum(rising, falling), min=0), [0, 0, 1, 0])


def _shift(name: str, function: Callable[..., Tensor]) -> None:
    def kernel(x: Tensor, axes: Static = None) -> Tensor:
        return function(x, None if axes is None else as_list(axes))

    kernel.__doc__ = "The zero frequency moved to the middle, or back."
    operation(f"signal.{name}", op_name=name, scope=name)(kernel)


_shift("fftshift", torch.fft.fftshift)
_shift("ifftshift", torch.fft.ifftshift)
