"""How commands end: errors in one line with exit code 2, Ctrl-C in one line with exit code 130, no tracebacks."""

import sys
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.control import Control
from rich.segment import ControlType
from typer.core import TyperGroup

USAGE_ERROR = 2
INTERRUPTED = 130


def stop(message: str, code: int = USAGE_ERROR) -> NoReturn:
    """End the command with one line on standard error."""
    Console(stderr=True, soft_wrap=True).print(f"[bold red]Error:[/] {message}", highlight=False)
    raise typer.Exit(code)


class CleanExits(TyperGroup):
    """A group of commands whose ends are all clean."""

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        """Run, then leave with the command's exit code."""
        extra["standalone_mode"] = False
        try:
            code = super().main(*args, **extra)
        except Exception as error:
            # typer's class for a mistake on the command line moved between its releases; this method is what they share.
            if not hasattr(error, "format_message"):
                raise
            Console(stderr=True, soft_wrap=True).print("[bold red]Error:[/]", error.format_message(), highlight=False)
            sys.exit(USAGE_ERROR)
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command; Ctrl-C ends it."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            console = Console(stderr=True)
            # Over the ^C that a terminal echoes.
            console.control(Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2)))
            console.print("[yellow]Interrupted[/]")
            raise typer.Exit(INTERRUPTED) from None
