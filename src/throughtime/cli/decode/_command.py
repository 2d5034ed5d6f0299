"""`throughtime decode`: options and their checks."""

from pathlib import Path
from typing import Annotated

import typer

from throughtime.cli._bounds import check_counts, check_seed
from throughtime.cli._devices import Device, check_device
from throughtime.cli._options import given_options
from throughtime.cli._user_errors import refuse

# Every one of them is followed at every step; a few find what there is to find.
WIDEST_BEAM = 1_000


def decode(  # noqa: PLR0913 (options of the command)
    context: typer.Context,
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a model that writes.")],
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Texts to go on with, or to translate.")
    ] = None,
    length: Annotated[int, typer.Option(metavar="N", help="Characters to write at most.")] = 400,
    samples: Annotated[int, typer.Option(metavar="N", help="How many texts for each beginning.")] = 1,
    temperature: Annotated[
        float, typer.Option(metavar="X", help="How bold: 0 takes the likeliest, 1 as often as learned.")
    ] = 0.8,
    top_k: Annotated[int | None, typer.Option(metavar="N", help="Choose among the N likeliest only.")] = None,
    top_p: Annotated[
        float | None, typer.Option(metavar="X", help="Choose among the likeliest that make up this probability.")
    ] = None,
    beam: Annotated[int, typer.Option(metavar="N", help="Translations to follow at once; 1 is greedy.")] = 5,
    best: Annotated[int, typer.Option(metavar="N", help="Translations to show of each text.")] = 1,
    seed: Annotated[int, typer.Option(metavar="N", help="The same seed gives the same text.")] = 0,
    device: Device = None,
) -> None:
    """Let a model write: text from a beginning, or one text for another.

    A model trained to *generate* goes on with each TEXT (or begins one), drawing character after character. A model
    trained to *translate* writes the best text it finds for each TEXT, by beam search; every text ends by itself. For a
    whole file of texts to translate, use `throughtime predict`.

    For example:

        throughtime decode runs/shakespeare "To be, or " --temperature 0.6 --samples 3
        throughtime decode runs/shakespeare --length 1000 --top-p 0.9 --seed 7
        throughtime decode runs/words hello throughtime --beam 10 --best 3

    Exit codes: 0 all well; 2 a mistake in a file or on the command line; 130 interrupted.
    """
    check_counts({"--length": length, "--samples": samples, "--top-k": top_k, "--best": best})
    check_counts({"--beam": beam}, most=WIDEST_BEAM)
    if not 0 <= temperature <= 100:
        refuse("`--temperature` is out of range", got=temperature, expected="0 to 100", fix="Try 0.8.")
    if top_p is not None and not 0 < top_p <= 1:
        refuse("`--top-p` is not a probability", got=top_p, expected="above 0, at most 1", fix="Try 0.9.")
    if best > beam:
        refuse(
            "`--best` is larger than `--beam`", got=f"{best} of {beam}", expected="at most all", fix="Raise `--beam`."
        )
    check_seed(seed)
    check_device(device)
    # torch takes seconds to import: not for --help, nor before a mistake is reported.
    from throughtime.cli.decode._run import write  # noqa: PLC0415

    style, beams = (temperature, top_k, top_p), (beam, best)
    write(run, texts or [], length, samples, style, beams, seed, device, given_options(context))
