"""`throughtime bench`: a cell against torch.nn, on this machine."""

from typing import Annotated

import typer

from throughtime.cli._bounds import check_counts
from throughtime.cli._devices import Device, check_device, use_device


def bench(
    cell: Annotated[str, typer.Argument(metavar="CELL", help="lstm, gru, rnn, or a class of tt.cells.")] = "lstm",
    units: Annotated[int, typer.Option(metavar="N", help="Units of the cell.")] = 128,
    inputs: Annotated[int, typer.Option(metavar="N", help="Features of a step.")] = 64,
    steps: Annotated[int, typer.Option(metavar="N", help="Steps of the longest sequence.")] = 100,
    batch: Annotated[int, typer.Option(metavar="N", help="Sequences at a time.")] = 32,
    repeat: Annotated[int, typer.Option(metavar="N", help="Rounds; each is timed once in each.")] = 15,
    device: Device = None,
) -> None:
    """Time a cell against torch.nn: training and inference, sequences of one length and of many.

    Results are compared with the plain loop before anything is timed. The two take turns; what is shown is the median
    of each and how many times as fast ours is. A cell that torch.nn does not have is timed against the plain loop.

    For example:

        throughtime bench
        throughtime bench gru --units 256 --batch 64
        throughtime bench LayerNormLSTMCell --steps 300

    Exit codes: 0 all well; 2 a mistake on the command line; 130 interrupted.
    """
    check_counts({"--units": units, "--inputs": inputs, "--steps": steps, "--batch": batch, "--repeat": repeat})
    check_device(device)
    # torch takes seconds to import: not for --help, nor before a mistake is reported.
    from throughtime.cli._timing import race  # noqa: PLC0415

    race(cell, units, inputs, steps, batch, repeat, use_device(device))
