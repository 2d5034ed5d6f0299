"""What is in a file or a folder, as tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text
from safetensors import SafetensorError, safe_open

from throughtime._json_files import read_json
from throughtime._text import plural
from throughtime.cli import _run_folder
from throughtime.cli._options import Columns
from throughtime.cli._user_errors import UserError, refuse
from throughtime.cli.inspect._foreign_formats import is_tensorflow
from throughtime.cli.tables import Layout, Survey, open_table, survey
from throughtime.cli.tables._infer_roles import sequence_column
from throughtime.cli.tables._infer_schema import look_over
from throughtime.cli.tables._missing import missing_line
from throughtime.cli.tasks._examples import sequences
from throughtime.cli.tasks._models import Shape
from throughtime.cli.train import _console

STATE = "training.json"


def show(path: Path) -> None:
    """Print whatever the path is."""
    console = Console(highlight=False)
    if is_tensorflow(path):
        show_variables(console, path)
    elif path.suffix == ".safetensors":
        show_arrays(console, path)
    elif (path / _run_folder.RUN).is_file():
        show_run(console, path)
    elif (path / _run_folder.WEIGHTS).is_file():
        show_checkpoint(console, path)
    else:
        show_data(console, path)


def show_data(console: Console, path: Path) -> None:
    """Columns, and what each would be taken for."""
    try:
        with console.status(f"Reading {escape(path.absolute().name)}"):
            found, layout, reasons = look_over(path, Columns())
    except UserError as mistake:
        table = open_table(path)
        console.print(_console.columns(survey(table, sequence_column(table, Columns())), {}))
        _say_not_ready(console, mistake)
        return
    console.print(_console.columns(found, reasons))
    try:
        with console.status("Checking the order of its steps"):
            check_order(found, layout)
    except UserError as mistake:
        _say_not_ready(console, mistake)
        return
    console.print(_console.task_line(layout))
    for line in filter(None, [missing_line(found, layout), *found.notes]):
        console.print(Text(line), soft_wrap=True)


def check_order(found: Survey, layout: Layout) -> None:
    """What training would find out on its way: that time goes back."""
    if layout.order is not None:
        for _ in sequences(found.table, layout, together=found.together):
            pass


def _say_not_ready(console: Console, mistake: UserError) -> None:
    console.print(Text(f"Not ready to train on: {mistake}"), soft_wrap=True)


def show_run(console: Console, folder: Path) -> None:
    """What a run learned, and how far it is."""
    import throughtime as tt  # noqa: PLC0415

    values = _run_folder.read_run(folder)
    try:
        history = tt.train.History.read(folder)
    except tt.InvalidArgumentError as error:
        raise UserError(" ".join(str(error).split())) from None
    console.print(_run_grid(folder, values, history))


def _run_grid(folder: Path, values: dict[str, Any], history: Any) -> Table:
    layout = values["layout"]
    grid = _pairs(f"{folder}: {layout['task']}")
    for name, columns in (("inputs", layout["inputs"]), ("targets", layout["targets"])):
        grid.add_row(name, Text(", ".join(column["name"] for column in columns)))
    for name in ("sequence", "order", "split"):
        if layout.get(name):
            grid.add_row(name, Text(layout[name]))
    grid.add_row("learns from", Text(values["file"]))
    for name, sizes in (("shape", Shape(**values["shape"]).said_of(layout["task"])), ("recipe", values["recipe"])):
        grid.add_row(name, ", ".join(f"{key} {value}" for key, value in sizes.items() if value is not None))
    epochs = values["recipe"]["epochs"]
    state = "finished" if "metrics" in values else f"go on with: throughtime train --resume {folder}"
    grid.add_row("progress", Text(f"{len(history.epochs)} of {plural(epochs, 'epoch')}, {state}"))
    if history.epochs:
        last = history.epochs[-1]
        for name, metrics in _measured(values, {"training": last.train, "validation": last.valid}).items():
            grid.add_row(name, ", ".join(f"{key} {value:.4g}" for key, value in metrics.items()))
    if "outcome" in values:
        grid.add_row("outcome", Text(values["outcome"]["headline"]))
    grid.add_row("files", Text(", ".join(sorted(file.name for file in folder.iterdir() if file.name[0] != "."))))
    return grid


def _measured(values: dict[str, Any], last: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Metrics by the part that they are of: those of the weights that are kept, or of the last epoch before the end."""
    found = values.get("metrics", {})
    if "epoch" not in found:
        return {f"{part}, last epoch": metrics for part, metrics in last.items() if metrics}
    sizes = {
        part: f"{plural(size['sequences'], 'sequence')}, {plural(size['steps'], 'step')}"
        for part, size in values.get("parts", {}).items()
    }
    return {f"{part} ({sizes[part]})": found[part] for part in sizes if found.get(part)}


def show_checkpoint(console: Console, folder: Path) -> None:
    """The arrays of a checkpoint, and the state of its training."""
    show_arrays(console, folder / _run_folder.WEIGHTS)
    state = folder / STATE
    if state.is_file():
        try:
            values = read_json(state)
            if not isinstance(values, dict):
                raise ValueError("something else than names and values")
        except ValueError as error:
            got, expected = str(error)[:80], "the JSON that training wrote"
            refuse(f"{state} cannot be read", got=got, expected=expected, fix="Take another one.")
        console.print(Text(f"Training state: {', '.join(map(str, values))}"))


def show_arrays(console: Console, path: Path) -> None:
    """Name, type and shape of every array, from the file's header."""
    try:
        with safe_open(path, framework="numpy") as file:
            arrays = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            rows = [(name, part.get_dtype(), list(part.get_shape())) for name, part in arrays.items()]
    except (SafetensorError, OSError) as error:
        refuse(f"{path.name} cannot be read", got=str(error)[:80], expected="a safetensors file", fix="Check the file.")
    numbers = sum(_size(shape) for _, _, shape in rows)
    title = f"{path.name}: {plural(len(rows), 'array')}, {plural(numbers, 'number')}"
    table = Table("name", "type", "shape", box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold")
    for name, dtype, shape in rows:
        table.add_row(Text(name), dtype, _sides(shape))
    console.print(table)


def show_variables(console: Console, path: Path) -> None:
    """Name, type, shape and size of every variable of a TensorFlow checkpoint, from its index."""
    import throughtime as tt  # noqa: PLC0415

    try:
        checkpoint = tt.interop.TFCheckpoint(path)
    except (ValueError, OSError) as error:
        # It says already what was got, what was expected and what to do.
        raise UserError(" ".join(str(error).split())) from None
    title = f"{checkpoint.prefix.name}: {plural(len(checkpoint), 'variable')}, {plural(checkpoint.nbytes, 'byte')}"
    columns = ("name", "type", "shape", "bytes")
    table = Table(*columns, box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold")
    table.columns[-1].justify = "right"
    for name, found in checkpoint.variables.items():
        table.add_row(Text(name), found.dtype, _sides(found.shape), f"{found.nbytes:,}")
    console.print(table)


def _sides(shape: Sequence[int]) -> str:
    return " × ".join(f"{size:,}" for size in shape) or "one number"


def _size(shape: list[int]) -> int:
    size = 1
    for side in shape:
        size *= side
    return size


def _pairs(title: str) -> Table:
    grid = Table(box=box.SIMPLE_HEAD, show_header=False, title=title, title_justify="left", title_style="bold")
    grid.add_column(style="dim")
    grid.add_column(overflow="fold")
    return grid
