"""`throughtime train`: options and their checks."""

from pathlib import Path
from typing import Annotated

import typer

from throughtime.cli._bounds import MOST_LAYERS, check_counts, check_seed
from throughtime.cli._devices import Device, check_device, use_device
from throughtime.cli._options import Columns, split_names
from throughtime.cli._user_errors import refuse


def train(  # noqa: PLR0913 (options of the command)
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="CSV, TSV, text (also .gz), Parquet, NPZ, or a folder. Without it: spoken vowels."
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="classify, tag, forecast, generate or translate. Guessed from the columns."),
    ] = None,
    sequence: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The column that says which sequence a row belongs to.")
    ] = None,
    target: Annotated[str, typer.Option(metavar="COLUMNS", help="What to learn; several to forecast: a,b,c.")] = "",
    inputs: Annotated[str, typer.Option(metavar="COLUMNS", help="What to learn from; all others are left out.")] = "",
    ignore: Annotated[str, typer.Option(metavar="COLUMNS", help="Columns to leave out.")] = "",
    categories: Annotated[str, typer.Option(metavar="COLUMNS", help="Columns whose numbers are names.")] = "",
    tokens: Annotated[
        str,
        typer.Option(metavar="KIND", help="Parts of texts: words or characters; words,characters: source, target."),
    ] = "",
    split: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="The column that says train, validation or test. Else a tenth each."),
    ] = None,
    order: Annotated[str | None, typer.Option(metavar="COLUMN", help="The column of the time; only checked.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="DIR", help="Where the run goes: runs/NAME unless you say.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Go on with an interrupted run, to the same result.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(metavar="N", help="Passes over the data.")] = None,
    cell: Annotated[
        str | None, typer.Option(metavar="NAME", help="lstm, gru, rnn, or a class of tt.cells such as SRUCell.")
    ] = None,
    units: Annotated[int | None, typer.Option(metavar="N", help="Units of each cell.")] = None,
    layers: Annotated[int | None, typer.Option(metavar="N", help="Cells on top of each other.")] = None,
    batch_size: Annotated[int | None, typer.Option(metavar="N", help="Sequences a step of training.")] = None,
    learning_rate: Annotated[float | None, typer.Option(metavar="X", help="The largest; it rises and falls.")] = None,
    horizon: Annotated[int | None, typer.Option(metavar="N", help="Steps to forecast.")] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="The same seed gives the same run.")] = 0,
    device: Device = None,
) -> None:
    """Learn from sequences: one command, no flags needed.

    What each column is, and so what to do, is guessed and shown; every guess can be overruled. Results go to one
    folder: `model.safetensors`, `run.json`, `report.html` to look at, and checkpoints to resume from.

    **Rows are steps**, and a column names the sequence (`sequence`, `id`, ...). A column `label`, `class`, `target` or
    `tag` is learned: one value for each whole sequence is *classify*, changing values are *tag*. Numbers alone are
    *forecast*.

        sequence,step,x,y,label
        a,0,0.1,2.3,walk
        a,1,0.2,2.1,walk
        b,0,1.4,0.3,run

    **Rows are texts**: two columns `source,target` are *translate*; one, or a `.txt` file, is *generate*.

    **NPZ**: `lengths` [S], steps one after another [sum of lengths, F] or padded [S, T, F], targets [S] or by step.
    **A folder**: one file a sequence; folders inside it are labels. A column `split` (train, test) is obeyed.

    For example:

        throughtime train                         # nine speakers told apart by two vowels
        throughtime train gestures.csv
        throughtime train energy.parquet --target load --horizon 24
        throughtime train shakespeare.txt --units 256
        throughtime train words.tsv --task translate
        throughtime train --resume runs/gestures
        torchrun --nproc-per-node 2 -m throughtime train gestures.csv

    Exit codes: 0 all well; 2 a mistake in a file or on the command line; 130 interrupted.
    """
    counts = {
        "--epochs": epochs,
        "--units": units,
        "--batch-size": batch_size,
        "--horizon": horizon,
    }
    check_counts(counts)
    check_counts({"--layers": layers}, MOST_LAYERS)
    if learning_rate is not None and not 0 < learning_rate < 10:
        fix = "Leave it out for a good default."
        refuse("`--learning-rate` is out of range", got=learning_rate, expected="between 0 and 10", fix=fix)
    check_seed(seed)
    check_device(device)
    columns = Columns(
        task,
        sequence,
        split_names(target),
        split_names(inputs),
        split_names(ignore),
        split,
        order,
        split_names(categories),
        split_names(tokens),
    )
    if resume is not None:
        given = [file, out, epochs, cell, units, layers, batch_size, learning_rate, horizon, *columns, seed or None]
        if any(value not in (None, ()) for value in given):
            fix = "Say `--resume DIR` alone, or with `--device`."
            refuse("`--resume` goes on as before", got="other flags too", expected="nothing else", fix=fix)
    if file is not None and not file.exists():
        refuse(f"cannot read {file}", got="no such file", expected="a file or a folder", fix="Check the path.")
    # torch takes seconds to import: not for --help, nor before a mistake is reported.
    from throughtime.cli.train._run import go_on, start  # noqa: PLC0415

    if resume is not None:
        go_on(resume, use_device(device))
        return
    shape = {"cell": cell, "units": units, "layers": layers, "horizon": horizon}
    recipe = {"epochs": epochs, "batch_size": batch_size, "learning_rate": learning_rate}
    sizes, training = ({name: value for name, value in said.items() if value} for said in (shape, recipe))
    start(file, columns, out, seed, sizes, training, use_device(device))
