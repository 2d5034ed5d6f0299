"""`throughtime run`: a TensorFlow 1 program as it stands, on this library."""

from pathlib import Path
from typing import Annotated

import typer

from throughtime.cli._user_errors import UserError


def run(
    program: Annotated[Path, typer.Argument(help="A .py or .ipynb file that imports tensorflow.", metavar="PROGRAM")],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="What the program itself takes.", metavar="[ARGUMENTS]...")
    ] = None,
) -> None:
    """Run a TensorFlow 1 program, no line changed: in this process `import tensorflow` finds `throughtime.tf1`.

    Tracebacks show the program's own lines; THROUGHTIME_FULL_TRACEBACK=1 shows all.
    """
    # torch takes seconds to import: not for --help.
    from throughtime.tf1._run_program import ProgramError, run_program  # noqa: PLC0415

    try:
        code = run_program(str(program), arguments or [])
    except ProgramError as error:
        raise UserError(str(error)) from None
    raise typer.Exit(code)
