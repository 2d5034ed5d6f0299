"""Where a command computes: on the GPU if there is one, unless the user says otherwise."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Annotated

import typer

from throughtime.cli._user_errors import refuse

if TYPE_CHECKING:
    import torch

Device = Annotated[
    str | None, typer.Option("--device", metavar="NAME", help="cpu, cuda, or cuda:1. A GPU if there is one.")
]


def check_device(name: str | None) -> None:
    """The name is that of a device; whether it is there only torch knows."""
    if name is not None and not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        fix = "Leave it out for a GPU if there is one."
        refuse("`--device` is unknown", got=repr(name), expected="cpu, cuda or cuda:NUMBER", fix=fix)
    if name is not None and ":" in name and "LOCAL_RANK" in os.environ:
        fix = "Say `--device cuda`."
        refuse("`--device` names one GPU for several workers", got=name, expected="one for each of them", fix=fix)


def use_device(name: str | None) -> torch.device:
    """The device to compute on, which kernels take for the current one."""
    # torch takes seconds to import: not for --help.
    import torch  # noqa: PLC0415

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    device = torch.device(name or ("cuda" if count else "cpu"))
    if device.type == "cpu":
        return device
    if (device.index or 0) >= count:
        got = f"{count} of them here" if count else "no GPU that torch can use"
        refuse(f"`--device` {name} is not there", got=got, expected="a GPU", fix="Say `--device cpu`.")
    if device.index is not None:
        torch.cuda.set_device(device)
    return torch.device("cuda", torch.cuda.current_device())
