"""The folder of a run: what was asked, what was learned, how it went."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from throughtime._json_files import read_json
from throughtime.cli._user_errors import UserError, refuse

FIX = "Give the folder that `throughtime train` wrote."
UNDO = "Undo the change in the file, or take another run."
RUN, WEIGHTS, REPORT, LOCK = "run.json", "model.safetensors", "report.html", ".lock"


def new_folder(out: Path | None, stem: str, held: ExitStack, warn: Callable[[str], None]) -> Path:
    """Make and lock the folder of a new run: `out`, or else `runs/NAME`, `runs/NAME-2`, ..."""
    if out is not None:
        make_folder(out)
        held.enter_context(locked(out, warn))
        # Another training may have written to it and ended since the first look.
        check_free(out)
        return out
    while True:
        folder = free_folder(stem)
        make_folder(folder)
        with ExitStack() as attempt:
            try:
                attempt.enter_context(locked(folder, warn))
            except UserError:
                # Another training of the same file has started at the same moment.
                continue
            if _is_free(folder):
                held.push(attempt.pop_all())
                return folder


@contextmanager
def locked(folder: Path, warn: Callable[[str], None]) -> Iterator[None]:
    """Hold a folder against other trainings; the second one is a mistake."""
    # With it comes torch, and help pages are to open at once.
    from throughtime import InvalidArgumentError  # noqa: PLC0415
    from throughtime.train._folder_lock import locked as lock  # noqa: PLC0415

    with ExitStack() as held:
        try:
            held.enter_context(lock(folder, warn))
        except InvalidArgumentError as error:
            raise UserError(str(error)) from None
        yield


def free_folder(stem: str, root: Path = Path("runs")) -> Path:
    """A folder that no earlier run has: the name, or the name and a number."""
    names = [stem, *(f"{stem}-{number}" for number in range(2, 10_000))]
    return next(root / name for name in names if not (root / name).exists())


def _is_free(folder: Path) -> bool:
    """Whether a folder is empty, but for a lock and what a run leaves that was killed before it began."""
    return all(path.suffix == ".new" or path.name == LOCK for path in folder.iterdir())


def check_free(folder: Path) -> None:
    """Neither an earlier run nor other files are in the folder."""
    if folder.is_dir() and not _is_free(folder):
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
    """Make the folder before training, so that results can be saved."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".probe"
        probe.touch()
        # Another training may try the same folder at the same moment.
        probe.unlink(missing_ok=True)
    except OSError as error:
        refuse(f"cannot write to {folder}", got=error.strerror, expected="a folder to write to", fix="Choose another.")


def write_run(folder: Path, values: dict[str, Any]) -> None:
    """Write `run.json`, whole or not at all."""
    # With it comes torch, and help pages are to open at once.
    from throughtime._atomic_files import whole  # noqa: PLC0415

    with whole(folder / RUN) as new:
        new.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def check_run(folder: Path) -> None:
    """There is a run in the folder."""
    if not (folder / RUN).is_file():
        got = f"no {RUN} in it" if folder.is_dir() else "a file" if folder.exists() else "no such folder"
        refuse(f"{folder} is not a run", got=got, expected="the folder of a training run", fix=FIX)


def read_run(folder: Path) -> dict[str, Any]:
    """What `write_run` wrote, every field of it checked: what follows relies on it."""
    check_run(folder)
    # With it comes torch, and help pages are to open at once.
    from throughtime.cli import _run_schema  # noqa: PLC0415

    path = folder / RUN
    try:
        values: dict[str, Any] = read_json(path, _without_repetition)
    except ValueError as error:
        got = str(error)[:80]
        refuse(f"{path} cannot be read", got=got, expected="the JSON that `throughtime train` wrote", fix=UNDO)
    try:
        _run_schema.check_run(values)
    except _run_schema.WrongValueError as error:
        refuse(f"{path}: {error.what}", got=error.got, expected=error.expected, fix=UNDO)
    return values


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; of a key that is there twice one value would be lost."""
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a key that is there twice")
    return values
