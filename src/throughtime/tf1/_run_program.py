"""Run a TensorFlow 1 program as it stands: `throughtime run PROGRAM` and `python -m throughtime.tf1 PROGRAM`."""

from __future__ import annotations

import builtins
import linecache
import os
import re
import sys
import traceback
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from throughtime._errors import problem
from throughtime.tf1 import _import_hook
from throughtime.tf1._notebook import code_cells

_PACKAGE = str(Path(__file__).parents[1]) + os.sep
_PYTHON_2 = re.compile(
    r"""^\s*(print\s+["'\w%(]|exec\s+["'\w]|raise\s+\w+\s*,|except\s+[\w.]+\s*,\s*\w+\s*:|from\s+\w+\s+import\s+.*\bprint_)"""
    r"|\b0\d+\b|<>|\d[lL]\b|`",
    re.MULTILINE,
)
FAILED, INTERRUPTED, WRONG_USAGE = 1, 130, 2


class ProgramError(Exception):
    """The program cannot be run; the message is one line."""


def run_program(program: str, arguments: Sequence[str] = ()) -> int:
    """Run a program as `__main__` with `tensorflow` being `throughtime.tf1`; returns the exit code."""
    path = Path(program)
    parts = list(_compiled(path))
    _import_hook.install()
    _say(f"`tensorflow` is throughtime.tf1 in this process (torch {torch.__version__}, {_device()})")
    module = _as_main(path, arguments)
    try:
        for code in parts:
            exec(code, module.__dict__)
    except SystemExit as ended:
        return _exit_code(ended)
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted\n")
        return INTERRUPTED
    except BaseException as error:
        sys.stderr.write("".join(_lines(error)))
        return FAILED
    finally:
        _flush()
    return 0


def _say(text: str) -> None:
    sys.stderr.write(f"throughtime: {text}\n")


def _device() -> str:
    return "CUDA" if torch.cuda.is_available() else "CPU"


def _compiled(path: Path) -> Iterator[types.CodeType]:
    """The code of a program, or of each cell of a notebook."""
    if not path.is_file():
        fix = "Check the path; it is relative to the current folder."
        raise ProgramError(problem("there is no such program", got=path, expected="a .py or .ipynb file", fix=fix))
    if path.suffix != ".ipynb":
        yield _compile(path.read_bytes(), str(path), path)
        return
    try:
        cells = code_cells(path)
    except (ValueError, KeyError, AttributeError):
        fix = "Open it in Jupyter and save it again."
        raise ProgramError(problem(f"{path} cannot be read", got="no cells", expected="a notebook", fix=fix)) from None
    skipped = [line for cell in cells for line in cell.skipped]
    if skipped:
        _say(f"left out {len(skipped)} magics and shell lines of {path.name}: {'; '.join(skipped)[:200]}")
    for cell in cells:
        name = f"{path}[cell {cell.number}]"
        # Tracebacks show lines of cells too.
        linecache.cache[name] = (len(cell.source), None, cell.source.splitlines(keepends=True), name)
        yield _compile(cell.source, name, path)


def _compile(source: bytes | str, name: str, path: Path) -> types.CodeType:
    try:
        return compile(source, name, "exec", dont_inherit=True)
    except SyntaxError as error:
        text = source.decode("utf-8", "replace") if isinstance(source, bytes) else source
        line = (error.text or "").strip()
        if _PYTHON_2.search(error.text or "") or "Missing parentheses" in str(error) or _tabs(error, text):
            fix = f"Convert it with `2to3 -w {path}` (Python 3.12 and older have it), then run it again."
            got = f"line {error.lineno}: {line}"
            raise ProgramError(
                problem(f"{path} is written in Python 2", got=got, expected="Python 3", fix=fix)
            ) from None
        fix = "Correct the line."
        got = f"{error.msg} in line {error.lineno}: {line}"
        raise ProgramError(problem(f"{path} is not a Python program", got=got, expected="Python 3", fix=fix)) from None


def _tabs(error: SyntaxError, text: str) -> bool:
    """Python 2 takes tabs and spaces mixed, and such files nearly always print without parentheses."""
    return isinstance(error, TabError) and bool(_PYTHON_2.search(text))


def _as_main(path: Path, arguments: Sequence[str]) -> types.ModuleType:
    """A fresh `__main__` with the program's own arguments and folder."""
    module = types.ModuleType("__main__")
    module.__file__ = str(path)
    module.__dict__["__builtins__"] = builtins
    if path.suffix == ".ipynb":
        module.__dict__["display"] = print
        os.environ.setdefault("MPLBACKEND", "Agg")
    sys.modules["__main__"] = module
    sys.argv = [str(path), *arguments]
    folder = str(path.resolve().parent)
    if sys.path:
        sys.path[0] = folder
    else:
        sys.path.append(folder)
    return module


def _exit_code(ended: SystemExit) -> int:
    if ended.code is None or isinstance(ended.code, int):
        return ended.code or 0
    sys.stderr.write(f"{ended.code}\n")
    return FAILED


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue


def _lines(error: BaseException) -> list[str]:
    """A traceback of the program's own lines, without ours; THROUGHTIME_FULL_TRACEBACK=1 shows all."""
    if os.environ.get("THROUGHTIME_FULL_TRACEBACK"):
        return traceback.format_exception(error)
    shown = traceback.TracebackException.from_exception(error)
    _strip(shown)
    return list(shown.format())


def _strip(shown: Any) -> None:
    """Remove frames of this package, and causes that have no other frames."""
    own = [frame for frame in shown.stack if not _is_ours(frame.filename)]
    shown.stack[:] = own
    for name in ("__cause__", "__context__"):
        other = getattr(shown, name)
        if other is not None:
            _strip(other)
            if not other.stack:
                setattr(shown, name, None)


def _is_ours(file: str) -> bool:
    return (
        file.startswith((_PACKAGE, "<tf1 program", "<frozen runpy>"))
        or f"{os.sep}site-packages{os.sep}torch{os.sep}" in file
    )
