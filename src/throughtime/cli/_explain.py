"""`throughtime explain`: what the engine makes of a cell, without running it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from throughtime.cli._bounds import check_counts
from throughtime.cli._devices import Device, check_device, use_device
from throughtime.cli._options import given_options
from throughtime.cli._user_errors import refuse

if TYPE_CHECKING:
    import torch


# What a run says itself.
FOR_CELLS_ONLY = ("units", "inputs")


def explain(
    context: typer.Context,
    what: Annotated[
        str, typer.Argument(metavar="CELL|RUN", help="lstm, gru, rnn, a class of tt.cells, or the folder of a run.")
    ] = "lstm",
    units: Annotated[int, typer.Option(metavar="N", help="Units of the cell; not for a run.")] = 128,
    inputs: Annotated[int, typer.Option(metavar="N", help="Features of a step; not for a run.")] = 64,
    steps: Annotated[int, typer.Option(metavar="N", help="Steps of the sequences.")] = 50,
    batch: Annotated[int, typer.Option(metavar="N", help="Sequences at a time.")] = 32,
    source: Annotated[bool, typer.Option("--source", help="Show the generated kernels instead.")] = False,
    device: Device = None,
) -> None:
    """Show how a cell would run: what leaves the loop over time, what stays, on which backend, and what it costs.

    Nothing is trained and nothing is timed. For a run, its own cell and sizes are taken.

    For example:

        throughtime explain lstm --units 256
        throughtime explain LayerNormLSTMCell --source
        throughtime explain runs/gestures

    Exit codes: 0 all well; 2 a mistake on the command line.
    """
    check_counts({"--units": units, "--inputs": inputs, "--steps": steps, "--batch": batch})
    check_device(device)
    # No cell has a path for a name.
    is_run = Path(what).is_dir() or len(Path(what).parts) > 1
    useless = [name for name in given_options(context) if name in FOR_CELLS_ONLY and is_run]
    if useless:
        fix = "Leave it out, or name a cell."
        refuse(f"`--{useless[0]}` is for cells", got=f"the run {what}", expected="a cell such as lstm", fix=fix)
    # torch takes seconds to import: not for --help, nor before a mistake is reported.
    import torch  # noqa: PLC0415

    import throughtime as tt  # noqa: PLC0415
    from throughtime.cli.tasks._inputs import make_cell  # noqa: PLC0415

    place = use_device(device)
    if is_run:
        cell, inputs = _cell_of_run(Path(what), place)
    else:
        cell = make_cell(what, units, 1, inputs)
    plan = tt.explain(cell.to(place), torch.zeros(batch, steps, inputs, device=place))
    typer.echo(plan.source if source else str(plan))


def _cell_of_run(folder: Path, place: "torch.device") -> tuple[Any, int]:
    """The cell that a run's model reads with, and the features it reads."""
    from throughtime.cli.tasks._load_model import load  # noqa: PLC0415

    model: Any = load(folder, place).model
    if hasattr(model, "inputs"):
        return model.forwards, model.inputs.size
    table = model.embedding if hasattr(model, "embedding") else model.source
    return model.forwards, table.embedding_dim
