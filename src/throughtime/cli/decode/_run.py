"""Texts on the screen."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
import typer
from rich.console import Console
from rich.text import Text

import throughtime as tt
from throughtime.cli._devices import use_device
from throughtime.cli._result_files import SCREEN, naming
from throughtime.cli._user_errors import refuse
from throughtime.cli.tables import Column, Layout
from throughtime.cli.tables._infer_roles import GENERATE, TRANSLATE
from throughtime.cli.tables._schema import WORDS
from throughtime.cli.tasks._load_model import load
from throughtime.cli.tasks._sampling import Style, generate, translate

# This number of tokens shows what the model knows.
SHOWN = 16
# A flag without effect would be taken for one with it.
FOR_ONE_ONLY = {GENERATE: ("length", "samples", "temperature", "top_k", "top_p"), TRANSLATE: ("beam", "best")}


def write(  # noqa: PLR0913 (options of the command)
    run: Path,
    texts: list[str],
    length: int,
    samples: int,
    style: tuple[float, int | None, float | None],
    beams: tuple[int, int],
    seed: int,
    device: str | None,
    given: Collection[str],
) -> None:
    """Print what the model of a run writes; `given` are the names of the options that were given."""
    place = use_device(device)
    saved = load(run, place)
    check_useful(saved.layout.task, given)
    if saved.layout.task == GENERATE:
        with naming(SCREEN):
            show_texts(saved.model, saved.layout.inputs[0], texts, length, samples, Style(*style), seed)
    elif saved.layout.task == TRANSLATE:
        if not texts:
            refuse("nothing to translate", got="no TEXT", expected="one or more", fix="Give them after the run.")
        with naming(SCREEN):
            show_translations(saved.model, saved.layout, texts, *beams, place)
    else:
        fix = f"Say `throughtime predict {run} FILE`."
        refuse(f"{run} does not write", got=f"a model to {saved.layout.task}", expected="one that writes", fix=fix)


def show_texts(
    model: Any, column: Column, prompts: list[str], length: int, samples: int, style: Style, seed: int
) -> None:
    """What follows each beginning."""
    console = Console(highlight=False, soft_wrap=True)
    for prompt in prompts or [""]:
        check_known(prompt, column)
        for text in generate(model, column, prompt, samples, length, style, seed):
            console.print(Text.assemble((prompt, "bold"), text[len(prompt) :]), end="\n\n" if samples > 1 else "\n")


def show_translations(model: Any, layout: Layout, texts: list[str], beam: int, best: int, place: torch.device) -> None:
    """A line for each translation, after the text that it is of."""
    column = layout.inputs[0]
    tokens = [column.split(text) for text in texts]
    for text, parts in zip(texts, tokens, strict=True):
        check_known(text, column)
        if not parts:
            refuse("nothing to translate", got="an empty text", expected="at least one token", fix="Write something.")
    batch = tt.train.pad([torch.from_numpy(column.places(parts)) for parts in tokens]).to(place)
    for text, written in zip(texts, translate(model, layout, batch.inputs, batch.lengths, beam), strict=True):
        for one in written[:best]:
            typer.echo(f"{text}\t{one}")


def check_useful(task: str, given: Collection[str]) -> None:
    """Options that the other kind of model obeys mean nothing to this one."""
    if task not in FOR_ONE_ONLY:
        return
    for other, names in FOR_ONE_ONLY.items():
        useless = [name for name in names if name in given and other != task]
        if useless:
            what = f"`--{useless[0].replace('_', '-')}` is for models that {other}"
            refuse(what, got=f"one that was trained to {task}", expected=f"one to {other}", fix="Leave it out.")


def check_known(text: str, column: Column) -> None:
    """A token that the model has never seen means nothing to it."""
    known = set(column.categories)
    unknown = [token for token in column.split(text) if token not in known]
    if unknown:
        shown = ", ".join(map(repr, column.categories[:SHOWN])) + (", …" if len(known) > SHOWN else "")
        words = column.tokens == WORDS
        more = "that has it" + (", or with `--tokens characters`, which reads words letter by letter" if words else "")
        refuse(
            f"{text[:40]!r} has an unknown {'word' if words else 'character'}",
            got=repr(unknown[0]),
            expected=f"what was met in training: {shown}",
            fix=f"Leave it out, or train on text {more}.",
        )
