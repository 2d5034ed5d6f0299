"""How commands end: errors in one line with exit code 2, Ctrl-C in one line with exit code 130, no tracebacks."""

import contextlib
import itertools
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.control import Control
from rich.segment import ControlType
from rich.text import Text
from typer.core import TyperGroup

from throughtime.cli._user_errors import UserError, user_error

USAGE_ERROR = 2
WORKER_LOST = 1
INTERRUPTED = 130
LEAVE = "Leave it out for a good default."
# Flags as other programs call them.
SYNONYMS = {
    **dict.fromkeys(("--lr", "--learning_rate", "--rate"), "--learning-rate"),
    **dict.fromkeys(("--hidden-size", "--hidden_size", "--hidden", "--hidden-dim", "--num-units"), "--units"),
    **dict.fromkeys(("--num-layers", "--num_layers", "--depth"), "--layers"),
    **dict.fromkeys(("--model", "--rnn-type", "--network"), "--cell"),
    **dict.fromkeys(("--num-epochs", "--max-epochs", "--iterations"), "--epochs"),
    **dict.fromkeys(("--label", "--label-column", "--y"), "--target"),
    **dict.fromkeys(("--gpu", "--cuda", "--accelerator"), "--device"),
    **dict.fromkeys(("--output", "--output-dir", "--out-dir", "--log-dir"), "--out"),
}
# Seconds within which torchrun ends all workers once one of them has failed; on a busy machine ending takes some.
A_MOMENT = 10.0


def stop(message: str, code: int = USAGE_ERROR) -> NoReturn:
    """End the command with one line on standard error."""
    _report(message)
    raise typer.Exit(code)


def _report(message: str) -> None:
    """Print an error as one line, brackets and long paths as they are."""
    if not _is_first_worker():
        # Most mistakes all workers find, and the first one says so. What it has not found will still be said.
        time.sleep(A_MOMENT)
    _print_error(message)


def _print_error(message: str) -> None:
    # A path may have bytes that are no text, which a terminal cannot show.
    message = message.encode("utf-8", "backslashreplace").decode("utf-8")
    line = Text.assemble(("Error:", "bold red"), " ", message)
    Console(stderr=True).print(line, soft_wrap=True)


def _is_first_worker() -> bool:
    """What torchrun says, if it has started us: torch itself may not be there yet."""
    return "LOCAL_RANK" not in os.environ or os.environ.get("RANK", "0") == "0"


def say_interrupted() -> None:
    """One line, over the ^C that a terminal echoes; of several workers, the first one's."""
    if not _is_first_worker():
        return
    console = Console(stderr=True)
    console.control(Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2)))
    console.print("[yellow]Interrupted[/]")


def _in_our_form(error: Any, arguments: Sequence[str]) -> str:
    """What typer says, or what we say of another program's flag, or of a word in the place of a number."""
    message = str(error.format_message())
    other = getattr(error, "option_name", None)
    meant, known = SYNONYMS.get(other or ""), _flags_of(error)
    if meant in known:
        what, expected = f"there is no `{other}`", f"one of {', '.join(known)}"
        return str(user_error(what, got=other, expected=expected, fix=f"Write `{meant}`."))
    flags: list[str] = getattr(getattr(error, "param", None), "opts", None) or []
    given = [word for flag, word in _flags_in(arguments) if flag in flags]
    kind = re.search("integer|number|float", message)
    if kind is None or not given:
        return message
    number, example = ("whole number", 10) if kind[0] == "integer" else ("number", 0.01)
    what, expected = f"`{flags[0]}` is no {number}", f"one such as {example}"
    return str(user_error(what, got=repr(given[-1]), expected=expected, fix=LEAVE))


def _flags_of(error: Any) -> list[str]:
    """The flags that the command has at which a mistake was made."""
    command = getattr(getattr(error, "ctx", None), "command", None)
    return [flag for param in getattr(command, "params", ()) for flag in param.opts if flag.startswith("--")]


def _flags_in(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Flags and what follows them, after a space or an equals sign."""
    for word, following in itertools.zip_longest(arguments, arguments[1:], fillvalue=""):
        flag, equals, value = word.partition("=")
        yield flag, value if equals else following


def _end_with_lost_worker(error: Exception) -> None:
    """If another worker is lost, one of those left says so, unless the lost one has told it in a line of its own."""
    from throughtime.train import WorkerLostError  # noqa: PLC0415 - torch takes seconds to import: not for --help

    if not isinstance(error, WorkerLostError):
        return
    kind, _, reason = next(iter(error.reasons.values()), "").partition(": ")
    is_mistake = kind == UserError.__name__
    # Others than the first wait before they tell a mistake, and are ended by torchrun meanwhile.
    is_told = kind == KeyboardInterrupt.__name__ or (is_mistake and 0 in error.reasons)
    if error.speaks and not is_told:
        _print_error(reason if is_mistake else str(error))
    raise typer.Exit(USAGE_ERROR if is_mistake else WORKER_LOST)


class CleanExits(TyperGroup):
    """A group of commands whose ends are all clean."""

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        """Run, then leave with the command's exit code."""
        extra["standalone_mode"] = False
        try:
            code = super().main(*args, **extra)
        except KeyboardInterrupt:
            say_interrupted()
            sys.exit(INTERRUPTED)
        except Exception as error:
            # What typer makes of a Ctrl-C before the command has begun.
            if type(error).__name__ == "Abort":
                say_interrupted()
                sys.exit(INTERRUPTED)
            # The class of a mistake on the command line moved between typer's releases; its method stayed.
            if not hasattr(error, "format_message"):
                raise
            _report(_in_our_form(error, extra.get("args") or (args[0] if args else None) or sys.argv[1:]))
            sys.exit(USAGE_ERROR)
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command; Ctrl-C ends it."""
        try:
            return super().invoke(ctx)
        except UserError as made:
            stop(str(made))
        except BrokenPipeError:
            # The reader, such as `head`, has closed the pipe: what is left in the buffer cannot be written.
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit from None
        except OSError as error:
            why = " ".join(str(error.strerror or error).split())
            stop(f"{error.filename or 'a file'} cannot be read or written: {why}.")
        except (MemoryError, RuntimeError) as error:
            _end_with_lost_worker(error)
            # torch has no class of its own for a CPU that is full.
            if not isinstance(error, MemoryError) and not re.search("out of|allocate|enough memory", str(error)):
                raise
            stop("there is not enough memory. Use smaller units, batches or sequences.")
        except KeyboardInterrupt:
            say_interrupted()
            raise typer.Exit(INTERRUPTED) from None
