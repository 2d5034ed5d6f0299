"""Attention, decoding, beam search and losses against what TensorFlow's own code answered."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from _decode_cases import ATTENTION, BEAM, BEAM_STEPS, LENGTHS, ROWS, STEPS, TOKENS, TREES
from _parts import Recorded, recorded_names, simple_cell, wrapper
from torch import Tensor

import throughtime as tt
from compare import check_close
from throughtime import decode
from throughtime.decode.decoders._beam_step import best_continuations, end_only

pytestmark = pytest.mark.covers("goldens")


def runs(case: Recorded, cell: decode.AttentionWrapper, how: str) -> tuple[Tensor, Any, Tensor]:
    """Outputs [T, B, ...], the final state, alignments [T, mechanisms, B, S]: by steps or by `dynamic_rnn`."""
    inputs = case.given["inputs"]
    state = cell.zero_state(ROWS, inputs.dtype)
    if how != "steps":
        with tt.backend(how):
            outputs, final, states = tt.dynamic_rnn(
                cell, inputs, initial_state=state, dtype=inputs.dtype, time_major=True, all_states=True
            )
        alignments = states.alignments if isinstance(states.alignments, tuple) else (states.alignments,)
        return outputs, final, torch.stack(alignments, 1)
    outputs, seen = [], []
    for step in inputs:
        output, state = cell(step, state)
        outputs.append(output)
        seen.append(torch.stack(state.alignments if isinstance(state.alignments, tuple) else (state.alignments,)))
    return torch.stack(outputs), state, torch.stack(seen)


@pytest.mark.parametrize("how", ["steps", "reference", "aten", "auto"])
@pytest.mark.parametrize("name", ATTENTION)
def test_attention(name: str, how: str) -> None:
    case = Recorded(f"attention/{name}")
    case.given["memory"].requires_grad_()
    cell = wrapper(ATTENTION[name], case.given)
    outputs, state, alignments = runs(case, cell, how)
    check_close("outputs", case.answer["outputs"], outputs)
    check_close("alignments", case.answer["alignments"], alignments)
    check_close("cell_state", case.answer["cell_state"], state.cell_state)
    check_close("attention", case.answer["attention"], state.attention)
    (outputs * case.given["pulls"]).sum().backward()
    check_gradients(case, cell)


def check_gradients(case: Recorded, cell: decode.AttentionWrapper) -> None:
    """The gradients of the memory and of every weight are TensorFlow's."""
    found: dict[str, Tensor | None] = {"memory": case.given["memory"].grad}
    inputs = case.given["cell.kernel"].shape[0]
    found |= {"cell.kernel": cell.cell.kernel.grad[:inputs], "cell.recurrent": cell.cell.kernel.grad[inputs:]}
    found["cell.bias"] = cell.cell.bias.grad
    for index, layer in enumerate(cell.attention_layers):
        if layer is not None:
            found[f"attention_layer.{index}"] = layer.kernel.grad
    for index, one in enumerate(cell.attention_mechanisms):
        for name, parameter in one.named_parameters():
            found[f"{index}.{name.removesuffix('.kernel')}"] = parameter.grad
    recorded = {name[2:]: value for name, value in case.answer.items() if name.startswith("d_")}
    assert found.keys() == recorded.keys()
    for name, gradient in found.items():
        value = torch.zeros_like(recorded[name]) if gradient is None else gradient
        check_close(f"the gradient of {name}", recorded[name], value)


@pytest.mark.parametrize("mode", ["recursive", "parallel", "hard"])
def test_monotonic_attention(mode: str) -> None:
    case = Recorded(f"monotonic/{mode}")
    p, previous = case.given["p"].abs(), case.given["previous"].abs() / 6
    if mode == "hard":
        p, previous = (p > 0.5).float(), torch.eye(6)[[1, 3, 0]]
    check_close(mode, case.answer["attention"], decode.monotonic_attention(p, previous, mode))


def parts(case: Recorded, attends: bool, width: int = 1) -> tuple[Any, Tensor, torch.nn.Linear, Any]:
    """A cell, a table of embeddings, an output layer and a state as recorded, for beams of `width`."""
    layer = torch.nn.Linear(*case.given["layer"].shape, bias=False)
    layer.weight.data = 3 * case.given["layer"].T
    first = decode.tile_batch(case.given["state"], width)
    if not attends:
        return simple_cell(case.given), case.given["table"], layer, first
    options = {"mechanisms": [("LuongAttention", {})], "is_list": False, "layer": 5, "output_attention": True}
    cell = wrapper(options, case.given)
    memory = decode.tile_batch(case.given["memory"], width)
    cell.attention_mechanisms[0].setup_memory(memory, decode.tile_batch(torch.tensor(LENGTHS), width))
    return cell, case.given["table"], layer, cell.zero_state(ROWS * width, torch.float32).clone(cell_state=first)


def real(values: Tensor, lengths: Tensor) -> Tensor:
    """`values` [B, T, ...] with zeros past the lengths: what TensorFlow leaves there means nothing."""
    within = torch.arange(values.shape[1]) < lengths.unsqueeze(1)
    return torch.where(within.view(*within.shape, *[1] * (values.ndim - 2)), values, 0)


@pytest.mark.parametrize("attends", [False, True], ids=["plain", "attention"])
def test_greedy(attends: bool) -> None:
    case = Recorded(f"greedy/{'attention' if attends else 'plain'}")
    cell, table, layer, state = parts(case, attends)
    helper = decode.GreedyEmbeddingHelper(table, [1] * ROWS, 0)
    outputs, _, lengths = decode.dynamic_decode(decode.BasicDecoder(cell, helper, state, layer), maximum_iterations=7)
    assert lengths.tolist() == case.answer["lengths"].tolist()
    check_close("outputs", real(case.answer["rnn_output"], lengths), outputs.rnn_output)
    check_close("samples", real(case.answer["sample_id"].long(), lengths), outputs.sample_id)


@pytest.mark.parametrize("steps", [False, True], ids=["at once", "step by step"])
@pytest.mark.parametrize("attends", [False, True], ids=["plain", "attention"])
def test_training(attends: bool, steps: bool) -> None:
    case = Recorded(f"training/{'attention' if attends else 'plain'}")
    cell, _, layer, state = parts(case, attends)
    helper = decode.TrainingHelper(case.given["inputs"], [STEPS, 1, 2])
    kind = type("StepByStep", (decode.BasicDecoder,), {}) if steps else decode.BasicDecoder
    outputs, final, lengths = decode.dynamic_decode(kind(cell, helper, state, layer), impute_finished=True)
    assert lengths.tolist() == case.answer["lengths"].tolist()
    check_close("outputs", case.answer["rnn_output"], outputs.rnn_output)
    check_close("samples", case.answer["sample_id"].long(), outputs.sample_id)
    check_close("state", case.answer["cell_state"], final.cell_state if attends else final)


@pytest.mark.parametrize("name", BEAM)
def test_beam_search(name: str) -> None:
    case, options = Recorded(f"beam/{name}"), BEAM[name]
    cell, table, layer, state = parts(case, options["attends"], options["width"])
    decoder = decode.BeamSearchDecoder(
        cell, table, [1] * ROWS, 0, state, options["width"], layer, options["length"], options["coverage"]
    )
    outputs, final, lengths = decode.dynamic_decode(decoder, maximum_iterations=8)
    assert outputs.predicted_ids.tolist() == case.answer["predicted_ids"].tolist()
    assert lengths.tolist() == case.answer["lengths"].tolist()
    steps = outputs.beam_search_decoder_output
    assert steps.predicted_ids.tolist() == case.answer["step_ids"].tolist()
    assert steps.parent_ids.tolist() == case.answer["parent_ids"].tolist()
    check_finite("scores", case.answer["scores"], steps.scores)
    check_finite("log_probs", case.answer["log_probs"], final.log_probs)


def check_finite(what: str, recorded: Tensor, found: Tensor) -> None:
    """Equal where there is a number to compare: impossible beams are minus infinity in both."""
    assert torch.equal(recorded.isfinite(), found.isfinite())
    check_close(what, torch.where(recorded.isfinite(), recorded, 0), torch.where(found.isfinite(), found, 0))


@pytest.mark.parametrize(("name", "steps", "width", "lengths"), TREES)
def test_gather_tree(name: str, steps: int, width: int, lengths: list[int]) -> None:
    case = Recorded(f"tree/{name}")
    found = decode.gather_tree(case.given["ids"], case.given["parents"], lengths, end_token=0)
    assert found.tolist() == case.answer["ids"].tolist()


@pytest.mark.parametrize("merged", [False, True], ids=["beams apart", "beams merged"])
@pytest.mark.parametrize("kind", ["scalars", "vectors", "matrices"])
@pytest.mark.parametrize("name", [name for name, *_ in TREES])
def test_gather_tree_from_array(name: str, kind: str, merged: bool) -> None:
    case = Recorded(f"tree/{name}")
    kept, expected = case.given[kind], case.answer[kind]
    if merged:
        kept, expected = kept.flatten(1, 2), expected.flatten(1, 2)
    array = tt.TensorArray(torch.float32, len(kept), clear_after_read=False).unstack(kept)
    for given in (kept, array):
        found = decode.gather_tree_from_array(given, case.given["parents"], case.given["beam_lengths"])
        assert torch.equal(found, expected)


@pytest.mark.parametrize("name", BEAM_STEPS)
def test_beam_step(name: str) -> None:
    case, (_, _, ended, weight) = Recorded(f"beam step/{name}"), BEAM_STEPS[name]
    finished, lengths = torch.tensor(ended), case.given["lengths"].long()
    step = best_continuations(
        case.given["log_probs"].log_softmax(1),
        finished,
        lengths,
        case.given["logits"].log_softmax(2),
        0,
        weight,
        None,
    )
    assert step.tokens.tolist() == case.answer["predicted_ids"].tolist()
    assert step.parents.tolist() == case.answer["parent_ids"].tolist()
    check_close("scores", case.answer["scores"], step.scores)
    check_close("log_probs", case.answer["log_probs"], step.log_probs)


def test_ended_beams_say_only_the_end_token() -> None:
    case = Recorded("mask/eos")
    finished = torch.tensor([[True, False, False], [False, True, True]])
    assert torch.equal(end_only(case.given["probs"], finished, 0), case.answer["probs"])


LOSSES = [name.removeprefix("loss/") for name in recorded_names() if name.startswith("loss/")]


@pytest.mark.parametrize("flags", LOSSES)
def test_sequence_loss(flags: str) -> None:
    case = Recorded(f"loss/{flags}")
    targets = (case.given["targets"].abs() * 64).long() % TOKENS
    weights = case.given["weights"].clamp(min=0)
    loss = decode.sequence_loss(case.given["logits"], targets, weights, *(flag == "1" for flag in flags))
    check_close("loss", case.answer["loss"].view(loss.shape), loss)
