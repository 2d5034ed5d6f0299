"""The folder of a run: what was asked, what was learned, how it went."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from throughtime._json_files import read_json
from throughtime.cli._mistakes import refuse

FIX = "Give the folder that `throughtime train` wrote."
RUN, WEIGHTS, REPORT = "run.json", "model.safetensors", "report.html"


def free_folder(stem: str, root: Path = Path("runs")) -> Path:
    """A folder that no earlier run has: the name, or the name and a number."""
    names = [stem, *(f"{stem}-{number}" for number in range(2, 10_000))]
    return next(root / name for name in names if not (root / name).exists())


def check_free(folder: Path) -> None:
    """Nothing of an earlier run, nor of anybody else, is in the way."""
    # A run that was killed before it began has left nothing but a file without its name.
    if folder.is_dir() and any(path.suffix != ".new" for path in folder.iterdir()):
        held = "an earlier run" if (folder / RUN).exists() else "other files"
        refuse(
            f"`--out` {folder} is not empty",
            got=held,
            expected="a new or empty folder",
            fix=f"Choose another, or go on with `throughtime train --resume {folder}`."
            if (folder / RUN).exists()
            else "Choose another.",
        )
    if folder.exists() and not folder.is_dir():
        refuse(f"`--out` {folder} is a file", got="a file", expected="a folder", fix="Choose another name.")


def make_folder(folder: Path) -> None:
    """Make the folder, so that nobody trains for results that cannot be saved."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".probe"
        probe.touch()
        probe.unlink()
    except OSError as error:
        refuse(f"cannot write to {folder}", got=error.strerror, expected="a folder to write to", fix="Choose another.")


def write_run(folder: Path, values: dict[str, Any]) -> None:
    """Write `run.json`, whole or not at all."""
    # With it comes torch, and help pages are to open at once.
    from throughtime._files import whole  # noqa: PLC0415

    with whole(folder / RUN) as new:
        new.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_run(folder: Path) -> dict[str, Any]:
    """What `write_run` wrote."""
    path = folder / RUN
    if not path.is_file():
        got = f"no {RUN} in it" if folder.is_dir() else "a file" if folder.exists() else "no such folder"
        refuse(f"{folder} is not a run", got=got, expected="the folder of a training run", fix=FIX)
    with understanding(folder):
        values: dict[str, Any] = read_json(path)
        if not {"layout", "shape", "recipe"} <= values.keys():
            raise KeyError
        return values


@contextmanager
def understanding(folder: Path) -> Iterator[None]:
    """A `run.json` that does not say what it should is a mistake."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError):
        expected = "what `throughtime train` wrote"
        refuse(f"{folder / RUN} cannot be read", got="something else", expected=expected, fix=FIX)
