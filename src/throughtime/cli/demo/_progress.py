"""Training as people like to watch it: a live bar on a terminal, a few plain lines in a log."""

from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from throughtime.cli.demo._speakers import Epoch

LOG_LINES = 8


def watch(console: Console, training: Iterator[Epoch], epochs: int) -> list[Epoch]:
    """Run the training to its end, showing each epoch."""
    history: list[Epoch] = []
    with _bar(console) as progress:
        task = progress.add_task("epoch", total=epochs, now="")
        for epoch in training:
            history.append(epoch)
            now = f"loss {epoch.loss:.3f}  test [bold]{epoch.test_accuracy:6.1%}[/]"
            progress.advance(task)
            progress.update(task, now=f"{now}  {_rate(progress, task)}")
            if not console.is_interactive and _worth_a_line(len(history), epochs):
                console.print(f"epoch {len(history):{len(str(epochs))}}/{epochs}  {now}")
    return history


def _bar(console: Console) -> Progress:
    """The live bar; nothing at all where there is no terminal to redraw it on."""
    return Progress(
        TextColumn("{task.description}"),
        MofNCompleteColumn(),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[now]}"),
        TimeRemainingColumn(compact=True),
        console=console,
        disable=not console.is_interactive,
        expand=True,
    )


def _rate(progress: Progress, task: TaskID) -> str:
    """Epochs a second so far."""
    elapsed = progress.tasks[task].elapsed
    return f"{progress.tasks[task].completed / elapsed:.1f}/s" if elapsed else ""


def _worth_a_line(done: int, epochs: int) -> bool:
    """True about `LOG_LINES` times in a run, and for its last epoch."""
    return done == epochs or done % max(1, epochs // LOG_LINES) == 0
