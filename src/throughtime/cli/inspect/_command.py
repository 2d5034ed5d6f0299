"""`throughtime inspect`: options and their checks."""

from pathlib import Path
from typing import Annotated

import typer

from throughtime.cli._user_errors import refuse
from throughtime.cli.inspect._foreign_formats import is_tensorflow, refuse_foreign


def inspect(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", help="Data, a run, a checkpoint (also one of TensorFlow's), or a .safetensors file."
        ),
    ],
) -> None:
    """Show what is in a file or a folder, without changing anything.

    Of **data** (CSV, TSV, Parquet, NPZ, text, a folder of them): its columns, its sequences, and what `throughtime
    train` would take each for. Of a **run**: what it learned, how far it is, how well it does. Of a **checkpoint** or
    a **.safetensors** file: the name, shape and type of every array; the numbers are not read. A checkpoint of
    TensorFlow's is named as there: `model.ckpt-1000`, one of its files, or a folder with a latest one.

    For example:

        throughtime inspect gestures.csv
        throughtime inspect runs/gestures
        throughtime inspect runs/gestures/model.safetensors
        throughtime inspect old/model.ckpt-1000

    Exit codes: 0 all well; 2 a file that cannot be read.
    """
    refuse_foreign(path)
    if not path.exists() and not is_tensorflow(path):
        refuse(f"cannot read {path}", got="no such file", expected="a file or a folder", fix="Check the path.")
    # Reading takes libraries that take seconds to import: not for --help.
    from throughtime.cli.inspect._show import show  # noqa: PLC0415

    show(path)
