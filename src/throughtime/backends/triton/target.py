"""The GPU that kernels are compiled for, and the functions that choose a tiling, compile and launch.

Tests compile for a card that is not there: they replace fields of `gpu_target`.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import torch

from throughtime._setting import Setting
from throughtime.backends.triton.grid_barrier import FUNCTIONS
from throughtime.backends.triton.launch import Launcher
from throughtime.backends.triton.support import is_interpreted
from throughtime.backends.triton.tiling import GpuSpec, Tiling, choose

EXACT = "tf32x3"


@lru_cache
def card_of(device: torch.device) -> GpuSpec:
    """The GPU; Triton's interpreter runs one block after another, so there it has one multiprocessor."""
    if device.type != "cuda":
        return GpuSpec(1, 2**40)
    properties = torch.cuda.get_device_properties(device)
    return GpuSpec(properties.multi_processor_count, properties.shared_memory_per_block_optin)  # type: ignore[attr-defined]


def precision() -> str:
    """How float32 is multiplied: as torch's settings say for matrix products on CUDA devices."""
    return "tf32" if torch.get_float32_matmul_precision() != "highest" else EXACT


def jit(name: str, text: str) -> Any:
    """The text as a function of Triton. Its lines are stored where Python and Triton look for source code."""
    import triton  # noqa: PLC0415 (slow, and not everywhere)
    from triton import language as tl  # noqa: PLC0415
    from triton.language.extra import libdevice  # noqa: PLC0415

    text = f"{text}\n{FUNCTIONS}"
    filename = f"<throughtime {name} {hash(text):x}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    scope: dict[str, object] = {"triton": triton, "tl": tl, "libdevice": libdevice, "__name__": __name__}
    exec(compile(text, filename, "exec"), scope)
    if is_interpreted():
        # The interpreter knows sums by their function, and has none of the card's own.
        scope["plus"] = tl.standard._sum_combine
    return scope["loop"]


@cache
def launch_knobs() -> Any:
    """Triton's settings of launches."""
    from triton import knobs  # noqa: PLC0415 (slow, and not everywhere)

    return knobs.runtime


@dataclass(frozen=True)
class GpuTarget:
    """The functions above, the choice of a tiling, the launch, and which devices are GPUs."""

    card_of: Callable[[torch.device], GpuSpec] = card_of
    precision: Callable[[], str] = precision
    jit: Callable[[str, str], Any] = jit
    choose: Callable[..., Tiling] = choose
    make_launcher: Callable[..., Launcher] = Launcher
    is_gpu: Callable[[torch.device], bool] = lambda device: device.type == "cuda"


gpu_target = Setting(GpuTarget())
"""The target of the process."""


def takes_kernels(device: torch.device) -> bool:
    """Whether Triton's kernels run on a device: a GPU, or any in the interpreter."""
    return gpu_target.value.is_gpu(device) or is_interpreted()
