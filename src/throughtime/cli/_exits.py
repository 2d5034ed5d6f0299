"""How commands end: errors in one line with exit code 2, Ctrl-C in one line with exit code 130, no tracebacks."""

import contextlib
import os
import re
import sys
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.control import Control
from rich.segment import ControlType
from rich.text import Text
from typer.core import TyperGroup

from throughtime.cli._mistakes import Mistake

USAGE_ERROR = 2
INTERRUPTED = 130


def stop(message: str, code: int = USAGE_ERROR) -> NoReturn:
    """End the command with one line on standard error."""
    _report(message)
    raise typer.Exit(code)


def _report(message: str) -> None:
    """Print an error as one line, brackets and long paths as they are."""
    line = Text.assemble(("Error:", "bold red"), " ", message)
    Console(stderr=True).print(line, soft_wrap=True)


class CleanExits(TyperGroup):
    """A group of commands whose ends are all clean."""

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        """Run, then leave with the command's exit code."""
        extra["standalone_mode"] = False
        try:
            code = super().main(*args, **extra)
        except Exception as error:
            # The class of a mistake on the command line moved between typer's releases; its method stayed.
            if not hasattr(error, "format_message"):
                raise
            _report(error.format_message())
            sys.exit(USAGE_ERROR)
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command; Ctrl-C ends it."""
        try:
            return super().invoke(ctx)
        except Mistake as mistake:
            stop(str(mistake))
        except BrokenPipeError:
            # Whoever reads along, such as `head`, has seen enough; what is left in the buffer has nowhere to go.
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit from None
        except OSError as error:
            why = " ".join(str(error.strerror or error).split())
            stop(f"{error.filename or 'a file'} cannot be read or written: {why}.")
        except (MemoryError, RuntimeError) as error:
            # torch has no class of its own for a CPU that is full.
            if not isinstance(error, MemoryError) and not re.search("out of|allocate|enough memory", str(error)):
                raise
            stop("there is not enough memory. Use smaller units, batches or sequences.")
        except KeyboardInterrupt:
            console = Console(stderr=True)
            # Over the ^C that a terminal echoes.
            console.control(Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2)))
            console.print("[yellow]Interrupted[/]")
            raise typer.Exit(INTERRUPTED) from None
