"""`throughtime predict`: options and their checks."""

from pathlib import Path
from typing import Annotated

import typer

from throughtime.cli._bounds import check_counts
from throughtime.cli._compressed import stem_of
from throughtime.cli._devices import Device, check_device
from throughtime.cli._result_files import check_output
from throughtime.cli._user_errors import refuse


def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder that `throughtime train` wrote.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="New sequences, with the columns of the training data.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="CSV, TSV or Parquet; - prints. FILE-predictions.csv unless you say."
        ),
    ] = None,
    probabilities: Annotated[bool, typer.Option("--probabilities", help="A column for each class.")] = False,
    batch_size: Annotated[int, typer.Option(metavar="N", help="Sequences at a time.")] = 256,
    device: Device = None,
) -> None:
    """Ask a trained model about new sequences.

    The file is read in pieces and results are written as they come, so it may be larger than memory; one sequence at a
    time has to fit. The rows of a sequence must stand together. The result appears when it is complete, and an
    earlier file of that name stays until then.

    What comes out: *classify*, a row for each sequence with its class and how sure the model is; *tag*, a row for each
    step; *forecast*, a row for each step to come; *translate*, a row for each text. Where the file has the true answer
    too, the command says how much of it is right.

    Tags keep the order column of the file (`step`, `time`, ...), so that both can be joined; a forecast goes on with it
    if it holds whole numbers, or dates that are always as far from each other. Elsewhere a column `position` counts the
    steps of each sequence from 1.

    For example:

        throughtime predict runs/gestures new.csv
        throughtime predict runs/gestures huge.parquet --out answers.parquet --probabilities
        throughtime predict runs/energy this-week.csv --out - | head

    Exit codes: 0 all well; 2 a mistake in a file or on the command line; 130 interrupted.
    """
    check_counts({"--batch-size": batch_size})
    check_device(device)
    if not file.exists():
        refuse(f"cannot read {file}", got="no such file", expected="a file or a folder", fix="Check the path.")
    out = out or Path(f"{stem_of(file)}-predictions.csv")
    check_output(out)
    if out.exists() and out.resolve() == file.resolve():
        refuse("`--out` is the file itself", got=out, expected="another name", fix="Choose another.")
    # torch takes seconds to import: not for --help, nor before a mistake is reported.
    from throughtime.cli.predict._run import run_predict  # noqa: PLC0415

    run_predict(run, file, out, probabilities=probabilities, batch_size=batch_size, device=device)
