"""The command itself: a thin shell that knows its subcommands and nothing of their work."""

import platform
from importlib.metadata import version
from typing import Annotated

import typer

import throughtime as tt
from throughtime.cli._bench import bench
from throughtime.cli._exit_codes import INTERRUPTED, CleanExits, say_interrupted
from throughtime.cli._explain import explain
from throughtime.cli._run import run
from throughtime.cli.decode import decode
from throughtime.cli.demo import demo
from throughtime.cli.inspect import inspect
from throughtime.cli.predict import predict
from throughtime.cli.train import train

app = typer.Typer(
    name="throughtime",
    cls=CleanExits,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    """Say what a bug report needs, without importing any of it."""
    if wanted:
        typer.echo(f"throughtime {tt.__version__} (torch {version('torch')}, Python {platform.python_version()})")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def throughtime(
    context: typer.Context,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and stop.")
    ] = False,
) -> None:
    """Recurrent networks through time, on PyTorch: any cell, any length."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


for command in (demo, train, predict, decode, explain, inspect, bench):
    app.command()(command)
# What follows the program's name is the program's.
app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})(run)


def main() -> None:
    """Run the `throughtime` command."""
    try:
        app()
    except KeyboardInterrupt:
        # Before there was a command to end it.
        say_interrupted()
        raise SystemExit(INTERRUPTED) from None
