"""Record `literals.npz`: what TensorFlow's seq2seq computes, according to TensorFlow Addons.

`tf.contrib.seq2seq` is gone, but its code lives on in TensorFlow Addons, whose numbers are these. Needs an environment
of its own (never this package's) with `tensorflow-cpu==2.15.1` and `tensorflow-addons==0.23.0`. From the repository
root:

    CUDA_VISIBLE_DEVICES= python tests/decode/record_literals.py

What goes in is drawn in units of 1/64, so that it is exact in every dtype. Names are `case/given/...` and
`case/answer/...`.
"""

from __future__ import annotations

import itertools
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_addons as tfa
from _decode_cases import (
    ATTENTION,
    BEAM,
    BEAM_STEPS,
    DEPTH,
    EMBEDDED,
    INPUTS,
    LENGTHS,
    MEMORY_STEPS,
    ROWS,
    STEPS,
    TOKENS,
    TREES,
    UNITS,
)

seq2seq = tfa.seq2seq
FILE = Path(__file__).with_name("literals.npz")


class Case:
    """What a case is given and what it answers, by name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.kept: dict[str, np.ndarray] = {}
        self._random = np.random.Generator(np.random.PCG64(zlib.crc32(name.encode())))

    def draw(self, name: str, *shape: int) -> np.ndarray:
        values = (self._random.integers(-64, 65, shape) / 64).astype(np.float32)
        self.kept[f"{self.name}/given/{name}"] = values
        return values

    def whole(self, name: str, low: int, high: int, *shape: int) -> np.ndarray:
        values = self._random.integers(low, high, shape).astype(np.int32)
        self.kept[f"{self.name}/given/{name}"] = values
        return values

    def answer(self, **values: Any) -> None:
        for name, value in values.items():
            self.kept[f"{self.name}/answer/{name}"] = np.asarray(value)


def wrapper(case: Case, options: dict[str, Any]) -> Any:
    """An attention wrapper of simple cells with drawn weights, and the tape that watches its memory."""
    memory = tf.constant(case.draw("memory", ROWS, MEMORY_STEPS, DEPTH))
    kinds = options["mechanisms"]
    tape = tf.GradientTape()
    tape.__enter__()
    tape.watch(memory)
    mechanisms = [
        getattr(seq2seq, kind)(UNITS, memory, memory_sequence_length=LENGTHS, **arguments) for kind, arguments in kinds
    ]
    cell = seq2seq.AttentionWrapper(
        tf.keras.layers.SimpleRNNCell(UNITS),
        mechanisms if options["is_list"] else mechanisms[0],
        attention_layer_size=options["layer"],
        output_attention=options["output_attention"],
    )
    return memory, mechanisms, cell, tape


def assign(case: Case, cell: Any, mechanisms: list[Any]) -> list[Any]:
    """Drawn values for every weight, in the order in which ours are named."""
    inner = cell._cell
    named = {"cell.kernel": inner.kernel, "cell.recurrent": inner.recurrent_kernel, "cell.bias": inner.bias}
    for index, layer in enumerate(cell._attention_layers or []):
        named[f"attention_layer.{index}"] = layer.kernel
    for index, mechanism in enumerate(mechanisms):
        named[f"{index}.memory_layer"] = mechanism.memory_layer.kernel
        if mechanism.query_layer is not None:
            named[f"{index}.query_layer"] = mechanism.query_layer.kernel
        # What TensorFlow 1 calls `attention_g` in Luong's mechanisms has another name here.
        for part in ("attention_v", "attention_g", "scale_weight", "attention_b", "attention_score_bias"):
            if getattr(mechanism, part, None) is not None:
                named[f"{index}.{part.replace('scale_weight', 'attention_g')}"] = getattr(mechanism, part)
    for name, variable in named.items():
        variable.assign(case.draw(name, *variable.shape))
    return list(named.items())


def attention(name: str, options: dict[str, Any]) -> Case:
    """Some steps of an attention wrapper: outputs, alignments, states, and gradients."""
    case = Case(f"attention/{name}")
    inputs = tf.constant(case.draw("inputs", STEPS, ROWS, INPUTS))
    memory, mechanisms, cell, tape = wrapper(case, options)
    cell(inputs[0], cell.get_initial_state(batch_size=ROWS, dtype=tf.float32))
    named = assign(case, cell, mechanisms)
    # The keys were made with other weights: once more.
    for mechanism in mechanisms:
        mechanism.setup_memory(memory, LENGTHS)
    state = cell.get_initial_state(batch_size=ROWS, dtype=tf.float32)
    outputs, alignments = [], []
    for step in range(STEPS):
        output, state = cell(inputs[step], state)
        outputs.append(output)
        alignments.append(tf.stack(tf.nest.flatten(state.alignments)))
    pulls = case.draw("pulls", STEPS, ROWS, outputs[0].shape[1])
    loss = tf.reduce_sum(tf.stack(outputs) * pulls)
    tape.__exit__(None, None, None)
    found = tape.gradient(loss, [memory, *(variable for _, variable in named)], unconnected_gradients="zero")
    names = ["memory", *(name for name, _ in named)]
    case.answer(outputs=tf.stack(outputs), alignments=tf.stack(alignments), cell_state=state.cell_state)
    case.answer(attention=state.attention, **{f"d_{name}": value for name, value in zip(names, found, strict=True)})
    return case


def monotonic(mode: str) -> Case:
    case = Case(f"monotonic/{mode}")
    p = np.abs(case.draw("p", ROWS, 6))
    previous = np.abs(case.draw("previous", ROWS, 6)) / 6
    if mode == "hard":
        p, previous = (p > 0.5).astype(np.float32), np.eye(6, dtype=np.float32)[[1, 3, 0]]
    case.answer(attention=seq2seq.monotonic_attention(tf.constant(p), tf.constant(previous), mode))
    return case


def decoder_parts(case: Case, attends: bool, rows: int) -> Any:
    """A cell, a table of embeddings, an output layer and a state, for `rows` rows."""
    table = case.draw("table", TOKENS, EMBEDDED)
    layer = tf.keras.layers.Dense(TOKENS, use_bias=False)
    tiled = rows // ROWS
    if attends:
        memory = tf.constant(case.draw("memory", ROWS, MEMORY_STEPS, DEPTH))
        mechanism = seq2seq.LuongAttention(
            UNITS, seq2seq.tile_batch(memory, tiled), seq2seq.tile_batch(tf.constant(LENGTHS), tiled)
        )
        cell = seq2seq.AttentionWrapper(tf.keras.layers.SimpleRNNCell(UNITS), mechanism, attention_layer_size=UNITS)
        state = cell.get_initial_state(batch_size=rows, dtype=tf.float32)
        cell(tf.zeros([rows, EMBEDDED]), state)
        assign(case, cell, [mechanism])
        mechanism.setup_memory(seq2seq.tile_batch(memory, tiled), seq2seq.tile_batch(tf.constant(LENGTHS), tiled))
        first = seq2seq.tile_batch(tf.constant(case.draw("state", ROWS, UNITS)), tiled)
        state = cell.get_initial_state(batch_size=rows, dtype=tf.float32).clone(cell_state=first)
    else:
        cell = tf.keras.layers.SimpleRNNCell(UNITS)
        cell.build([None, EMBEDDED])
        cell.kernel.assign(case.draw("cell.kernel", EMBEDDED, UNITS))
        cell.recurrent_kernel.assign(case.draw("cell.recurrent", UNITS, UNITS))
        cell.bias.assign(case.draw("cell.bias", UNITS))
        state = seq2seq.tile_batch(tf.constant(case.draw("state", ROWS, UNITS)), tiled)
    layer.build([None, UNITS])
    layer.kernel.assign(3 * case.draw("layer", UNITS, TOKENS))
    return tf.constant(table), cell, layer, state


def greedy(attends: bool) -> Case:
    case = Case(f"greedy/{'attention' if attends else 'plain'}")
    table, cell, layer, state = decoder_parts(case, attends, ROWS)
    decoder = seq2seq.BasicDecoder(cell, seq2seq.GreedyEmbeddingSampler(), layer, maximum_iterations=7)
    outputs, final, lengths = decoder(table, start_tokens=[1] * ROWS, end_token=0, initial_state=state)
    case.answer(rnn_output=outputs.rnn_output, sample_id=outputs.sample_id, lengths=lengths)
    case.answer(cell_state=final.cell_state if attends else final)
    return case


def training(attends: bool) -> Case:
    case = Case(f"training/{'attention' if attends else 'plain'}")
    _, cell, layer, state = decoder_parts(case, attends, ROWS)
    inputs = case.draw("inputs", ROWS, STEPS, EMBEDDED)
    decoder = seq2seq.BasicDecoder(cell, seq2seq.TrainingSampler(), layer, impute_finished=True)
    outputs, final, lengths = decoder(inputs, initial_state=state, sequence_length=[STEPS, 1, 2])
    case.answer(rnn_output=outputs.rnn_output, sample_id=outputs.sample_id, lengths=lengths)
    case.answer(cell_state=final.cell_state if attends else final)
    return case


def beam(name: str, options: dict[str, Any]) -> Case:
    case = Case(f"beam/{name}")
    width = options["width"]
    table, cell, layer, state = decoder_parts(case, options["attends"], ROWS * width)
    decoder = seq2seq.BeamSearchDecoder(
        cell,
        width,
        output_layer=layer,
        length_penalty_weight=options["length"],
        coverage_penalty_weight=options["coverage"],
        maximum_iterations=8,
    )
    outputs, final, lengths = decoder(table, start_tokens=[1] * ROWS, end_token=0, initial_state=state)
    steps = outputs.beam_search_decoder_output
    case.answer(predicted_ids=outputs.predicted_ids, scores=steps.scores, step_ids=steps.predicted_ids)
    case.answer(parent_ids=steps.parent_ids, log_probs=final.log_probs, lengths=lengths)
    return case


def loss(flags: tuple[bool, ...]) -> Case:
    case = Case("loss/" + "".join("01"[flag] for flag in flags))
    logits = case.draw("logits", ROWS, STEPS, TOKENS)
    weights = np.maximum(case.draw("weights", ROWS, STEPS), 0)
    targets = (np.abs(case.draw("targets", ROWS, STEPS)) * 64).astype(np.int64) % TOKENS
    across_time, across_batch, over_time, over_batch = flags
    case.answer(
        loss=seq2seq.sequence_loss(
            tf.constant(logits),
            tf.constant(targets),
            tf.constant(weights),
            average_across_timesteps=across_time,
            average_across_batch=across_batch,
            sum_over_timesteps=over_time,
            sum_over_batch=over_batch,
        )
    )
    return case


def tree(name: str, steps: int, width: int, lengths: list[int]) -> Case:
    """Backtraces of random trees, of tokens and of what an array kept."""
    case = Case(f"tree/{name}")
    rows = len(lengths)
    ids = case.whole("ids", 0, TOKENS, steps, rows, width)
    parents = case.whole("parents", 0, width, steps, rows, width)
    case.answer(ids=seq2seq.gather_tree(ids, parents, np.array(lengths, np.int32), end_token=0))
    beam_lengths = case.whole("beam_lengths", 1, steps + 1, rows, width)
    for kind, shape in {"scalars": (), "vectors": (3,), "matrices": (2, 3)}.items():
        kept = tf.constant(case.draw(kind, steps, rows, width, *shape))
        case.answer(**{kind: seq2seq.gather_tree_from_array(kept, parents, beam_lengths)})
    return case


def beam_step(name: str, width: int, tokens: int, ended: list[list[bool]], weight: float) -> Case:
    """One step from given beams."""
    case = Case(f"beam step/{name}")
    rows = len(ended)
    logits = case.draw("logits", rows, width, tokens)
    finished = np.array(ended)
    lengths = case.whole("lengths", 1, 6, rows, width).astype(np.int64)
    state = seq2seq.BeamSearchDecoderState(
        cell_state=tf.zeros([rows, width]),
        log_probs=tf.nn.log_softmax(case.draw("log_probs", rows, width)),
        lengths=tf.constant(lengths),
        finished=tf.constant(finished),
        accumulated_attention_probs=(),
    )
    outputs, following = seq2seq.beam_search_decoder._beam_search_step(
        time=2,
        logits=tf.constant(logits),
        next_cell_state=tf.zeros([rows, width]),
        beam_state=state,
        batch_size=tf.constant(rows),
        beam_width=width,
        end_token=0,
        length_penalty_weight=weight,
        coverage_penalty_weight=0.0,
        output_all_scores=False,
    )
    case.answer(scores=outputs.scores, predicted_ids=outputs.predicted_ids, parent_ids=outputs.parent_ids)
    case.answer(log_probs=following.log_probs, lengths=following.lengths, finished=following.finished)
    return case


def mask() -> Case:
    """Beams that have ended may only say the end token."""
    case = Case("mask/eos")
    probs = case.draw("probs", 2, 3, TOKENS)
    finished = np.array([[True, False, False], [False, True, True]])
    case.answer(probs=seq2seq.beam_search_decoder._mask_probs(tf.constant(probs), 0, tf.constant(finished)))
    return case


def main() -> None:
    cases = [attention(name, options) for name, options in ATTENTION.items()]
    cases += [monotonic(mode) for mode in ("recursive", "parallel", "hard")]
    cases += [kind(attends) for kind in (greedy, training) for attends in (False, True)]
    cases += [beam(name, options) for name, options in BEAM.items()]
    ways = [
        flags for flags in itertools.product([False, True], repeat=4) if not any(np.logical_and(flags[:2], flags[2:]))
    ]
    # An average over one axis together with a sum over the other: TensorFlow forgets the sum.
    cases += [tree(*arguments) for arguments in TREES]
    cases += [beam_step(name, *arguments) for name, arguments in BEAM_STEPS.items()] + [mask()]
    cases += [loss(flags) for flags in ways if not (any(flags[:2]) and any(flags[2:]))]
    kept = {name: value for case in cases for name, value in case.kept.items()}
    np.savez_compressed(FILE, **kept)
    print(f"{len(cases)} cases, {len(kept)} arrays")


if __name__ == "__main__":
    main()
