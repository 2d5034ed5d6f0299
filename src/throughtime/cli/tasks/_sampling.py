"""Models that write, at work: text from a prompt, and one text for another."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

import throughtime as tt
from throughtime.cli.tables import Column, Layout

# A translation is at most this many times as long as its source, and a little.
LONGER, AND_MORE = 2, 6
LENGTH_PENALTY = 0.6


class Style(NamedTuple):
    """How to draw characters; a temperature of 0 always takes the likeliest."""

    temperature: float = 0.8
    top_k: int | None = None
    top_p: float | None = None


@torch.no_grad()
def generate(model: Any, column: Column, prompt: str, count: int, longest: int, style: Style, seed: int) -> list[str]:
    """`count` texts that begin with the prompt, each until it ends or is as long as asked."""
    device = model.embedding.weight.device
    ids = torch.from_numpy(column.places(column.split(prompt))).to(device)
    # A new text begins where another has ended.
    whole = torch.cat([ids.new_tensor([model.end]), ids]).expand(count, -1)
    state: Any = model.forwards.zero_state(count, torch.float32)
    if whole.shape[1] > 1:
        _, state = model(whole[:, :-1], ids.new_full((count,), whole.shape[1] - 1))
    last = whole[:, -1]
    if style.temperature == 0:
        helper: Any = tt.decode.GreedyEmbeddingHelper(model.embedding, last, model.end)
    else:
        helper = tt.decode.SampleEmbeddingHelper(
            model.embedding, last, model.end, style.temperature, seed, top_k=style.top_k, top_p=style.top_p
        )
    decoder = tt.decode.BasicDecoder(model.forwards, helper, state, output_layer=model.answer)
    outputs, _, lengths = tt.decode.dynamic_decode(decoder, maximum_iterations=longest)
    said = zip(outputs.sample_id.cpu(), lengths.tolist(), strict=True)
    return [prompt + _text(column, row, length, model.end) for row, length in said]


@torch.no_grad()
def translate(model: Any, layout: Layout, ids: Tensor, lengths: Tensor, beam_width: int) -> list[list[str]]:
    """The best texts for each row of `ids` [B, S]: `beam_width` of them, the best first."""
    column = layout.targets[0]
    state, start = model.read(ids, lengths), ids.new_full((len(ids),), model.begin)
    longest = LONGER * ids.shape[1] + AND_MORE
    if beam_width == 1:
        helper = tt.decode.GreedyEmbeddingHelper(model.target, start, model.end)
        decoder: Any = tt.decode.BasicDecoder(model.writer, helper, state, output_layer=model.answer)
        outputs, _, ends = tt.decode.dynamic_decode(decoder, maximum_iterations=longest)
        said = zip(outputs.sample_id.cpu(), ends.tolist(), strict=True)
        return [[_text(column, row, end, model.end)] for row, end in said]
    decoder = tt.decode.BeamSearchDecoder(
        model.writer,
        model.target,
        start,
        model.end,
        tt.decode.tile_batch(state, beam_width),
        beam_width,
        output_layer=model.answer,
        length_penalty_weight=LENGTH_PENALTY,
    )
    outputs, _, ends = tt.decode.dynamic_decode(decoder, maximum_iterations=longest)
    return [
        [_text(column, row[:, beam], end[beam], model.end) for beam in range(beam_width)]
        for row, end in zip(outputs.predicted_ids.cpu(), ends.tolist(), strict=True)
    ]


def _text(column: Column, ids: Tensor, length: int, end: int) -> str:
    """Tokens up to the end; what is not a token of the column is left out."""
    places = [place for place in ids[:length].tolist() if 0 < place < end]
    return column.join([column.categories[place - 1] for place in places])
