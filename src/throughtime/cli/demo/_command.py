"""`throughtime demo`: options, their checks, and the three parts in order."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from throughtime.cli._bounds import check_counts, check_seed
from throughtime.cli._exit_codes import stop
from throughtime.cli._user_errors import refuse

FULL_EPOCHS = 30
QUICK_EPOCHS = 3
GOAL_MISSED = 1


def demo(
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Where the picture goes; made if it is not there.")
    ] = Path("throughtime-demo"),
    seed: Annotated[int, typer.Option(metavar="N", help="The same seed gives the same run.")] = 0,
    epochs: Annotated[
        int | None, typer.Option(metavar="N", help=f"Passes over the training data: {FULL_EPOCHS} unless you say.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help=f"A short look: {QUICK_EPOCHS} epochs, no accuracy goal.")
    ] = False,
) -> None:
    """See it work: four sequences through time, then a classifier that tells who is speaking.

    The first part shows what `sequence_length` does, step by step. The second trains an LSTM on 270 spoken
    vowels of varying length until it knows nine speakers apart. The third draws what happened.

    Exit codes: 0 all well; 1 a full run missed its accuracy goal; 2 a mistake on the command line; 130 interrupted.
    """
    _check_options(seed, epochs, quick)
    _check_writable(out)
    # torch and matplotlib take seconds to import: not for --help, nor before a mistake is reported.
    from throughtime.cli.demo._sections import run_parts  # noqa: PLC0415

    chosen = epochs or (QUICK_EPOCHS if quick else FULL_EPOCHS)
    reached = run_parts(out, seed, chosen)
    if chosen == FULL_EPOCHS and not reached:
        stop("the full run missed its accuracy goal.", GOAL_MISSED)


def _check_options(seed: int, epochs: int | None, quick: bool) -> None:
    """Stop at values that cannot work, before any work."""
    if quick and epochs is not None:
        refuse(
            "`--quick` and `--epochs` both set the number of epochs", got="both", expected="one", fix="Leave one out."
        )
    check_counts({"--epochs": epochs})
    check_seed(seed)


def _check_writable(folder: Path) -> None:
    """Make the folder and write to it before training, so that the picture can be saved."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        stop(f"cannot write to --out {folder}: {error.strerror}. Choose another folder.")
