"""Finished work on a card: decoding, training and the command, compared with the CPU. Skipped where there is none."""

from __future__ import annotations

import copy
import csv
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import throughtime as tt
from cli_files import call, gestures, pairs, said, series, tags, text

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.covers("training"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
DEVICE = "cuda"
END, START, WORDS = 0, 1, 9


@pytest.fixture(autouse=True)
def _as_users_run_it() -> None:
    torch.set_deterministic_debug_mode("default")


class Translator(nn.Module):
    """Reads with a GRU, writes with an LSTM that looks back."""

    def __init__(self, mechanism: Callable[..., Any]) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(12, 8), nn.Embedding(WORDS, 8)
        self.encoder = tt.GRUCell(24, input_size=8)
        self.attention = mechanism(24, memory_size=24)
        self.cell = tt.decode.AttentionWrapper(tt.LSTMCell(24), self.attention, 16, input_size=8)
        self.project = nn.Linear(16, WORDS)

    def read(self, tokens: Tensor, lengths: Tensor) -> Any:
        outputs, _ = tt.dynamic_rnn(self.encoder, self.source(tokens), lengths, dtype=torch.float32)
        self.attention.setup_memory(outputs, lengths)
        return self.cell.zero_state(len(tokens), torch.float32)


MECHANISMS = {
    "Bahdanau": tt.decode.BahdanauAttention,
    "Luong": tt.decode.LuongAttention,
    "Luong, monotonic": tt.decode.LuongMonotonicAttention,
}


def both(mechanism: str) -> list[tuple[Translator, Tensor, Tensor]]:
    """The same model and texts on the CPU and on the card."""
    model = Translator(MECHANISMS[mechanism])
    tokens, lengths = torch.randint(1, 12, (6, 9)), torch.tensor([9, 1, 4, 9, 7, 2])
    # Far from ties, so that rounding does not decide which token is best.
    model.project.weight.data.mul_(8)
    return [(model, tokens, lengths), (copy.deepcopy(model).to(DEVICE), tokens.to(DEVICE), lengths.to(DEVICE))]


@torch.no_grad()
def greedy(model: Translator, tokens: Tensor, lengths: Tensor) -> tuple[Any, ...]:
    helper = tt.decode.GreedyEmbeddingHelper(model.target, [START] * len(tokens), END)
    decoder = tt.decode.BasicDecoder(model.cell, helper, model.read(tokens, lengths), model.project)
    outputs, state, ends = tt.decode.dynamic_decode(decoder, maximum_iterations=15)
    return outputs.rnn_output, outputs.sample_id, state.cell_state.c, ends


@torch.no_grad()
def beams(model: Translator, tokens: Tensor, lengths: Tensor) -> tuple[Any, ...]:
    decoder = tt.decode.BeamSearchDecoder(
        model.cell,
        model.target,
        [START] * len(tokens),
        END,
        tt.decode.tile_batch(model.read(tokens, lengths), 4),
        beam_width=4,
        output_layer=model.project,
        length_penalty_weight=0.6,
        coverage_penalty_weight=0.1,
    )
    outputs, state, ends = tt.decode.dynamic_decode(decoder, maximum_iterations=15)
    return outputs.predicted_ids, outputs.beam_search_decoder_output.scores, state.log_probs, ends


def taught(model: Translator, tokens: Tensor, lengths: Tensor) -> tuple[Any, ...]:
    """Teacher forcing: the loss and every gradient."""
    said_lengths = lengths.flip(0)
    helper = tt.decode.TrainingHelper(model.target(tokens.flip(0) % WORDS), said_lengths)
    decoder = tt.decode.BasicDecoder(model.cell, helper, model.read(tokens, lengths), model.project)
    logits = tt.decode.dynamic_decode(decoder)[0].rnn_output
    real = tt.train.mask(said_lengths, logits.shape[1]).float()
    loss = tt.decode.sequence_loss(logits, tokens[:, : logits.shape[1]] % WORDS, real)
    return loss, *torch.autograd.grad(loss, list(model.parameters()), materialize_grads=True)


@pytest.mark.parametrize("way", [greedy, beams, taught], ids=lambda way: way.__name__)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_decoding_is_that_of_the_cpu(mechanism: str, way: Callable[..., tuple[Any, ...]]) -> None:
    plain, card = (way(*case) for case in both(mechanism))
    for expected, found in zip(plain, card, strict=True):
        assert found.device.type == DEVICE
        torch.testing.assert_close(found.cpu(), expected, rtol=2e-4, atol=2e-5)


def test_teacher_forcing_and_its_attention_are_explained() -> None:
    (_, (model, tokens, lengths)) = both("Luong")
    state = model.read(tokens, lengths)
    plan = tt.explain(model.cell, model.target(tokens % WORDS), lengths, state, torch.float32)
    print(plan.backend, *plan.reasons.items(), sep="\n")
    assert plan.backend


@pytest.mark.parametrize("options", [{}, {"top_k": 3}, {"top_p": 0.8}, {"softmax_temperature": 0.5}], ids=str)
def test_samples_are_reproducible(options: dict[str, Any]) -> None:
    model, tokens, lengths = both("Luong")[1]

    @torch.no_grad()
    def sampled(seed: int) -> Tensor:
        helper = tt.decode.SampleEmbeddingHelper(model.target, [START] * len(tokens), END, seed=seed, **options)
        decoder = tt.decode.BasicDecoder(model.cell, helper, model.read(tokens, lengths), model.project)
        return tt.decode.dynamic_decode(decoder, maximum_iterations=40)[0].sample_id

    assert torch.equal(sampled(1), sampled(1))
    assert sampled(1).shape != sampled(2).shape or not torch.equal(sampled(1), sampled(2))


class Tagger(nn.Module):
    """Says at every step how many ones there were, up to three."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = tt.DropoutWrapper(tt.LSTMCell(24, input_size=1), output_keep_prob=0.9, seed=3)
        self.drop, self.out = nn.Dropout(0.1), nn.Linear(24, 4)

    def forward(self, inputs: Tensor, lengths: Tensor, state: Any) -> tuple[Tensor, Any]:
        outputs, state = tt.dynamic_rnn(self.cell, inputs, lengths, state, torch.float32)
        return self.out(self.drop(outputs)), state


def measure(model: nn.Module, batch: tt.train.Batch, state: Any) -> tuple[dict[str, tt.train.Mean], Any]:
    scores, state = model(batch.inputs, batch.lengths, state)
    return {"loss": tt.train.cross_entropy(scores, batch.targets, batch.lengths)}, state


def fit(folder: Path | None = None, epochs: int = 6, **options: Any) -> tuple[tt.train.History, Tensor]:
    """Train on the card, from wherever the folder stands; the history and the weights."""
    torch.manual_seed(0)
    bits = [(torch.rand(length, 1) < 0.3).float() for length in torch.randint(1, 30, (90,)).tolist()]
    examples = [(sequence, sequence[:, 0].long().cumsum(0).clamp(max=3)) for sequence in bits]
    model = Tagger().to(DEVICE)
    history = tt.train.fit(
        model,
        measure,
        tt.train.loader(examples, 30),
        optimizer=torch.optim.Adam(model.parameters(), 0.02),
        epochs=epochs,
        clip_norm=1.0,
        truncate=12,
        folder=folder,
        resume=folder is not None,
        **options,
    )
    return history, torch.cat([weight.detach().flatten() for weight in model.parameters()])


@pytest.mark.parametrize("precision", [None, torch.bfloat16, torch.float16], ids=str)
def test_training_learns(precision: torch.dtype | None) -> None:
    history, weights = fit(precision=precision)
    assert history.epochs[-1].train["loss"] < 0.8 * history.epochs[0].train["loss"]
    assert weights.isfinite().all()
    assert history.steps[-1].memory > 0


def test_a_resumed_run_ends_with_the_same_bits(tmp_path: Path) -> None:
    _, whole = fit(tmp_path / "whole", checkpoint_every=2)
    for epochs in (1, 3, 6):
        _, broken = fit(tmp_path / "broken", epochs, checkpoint_every=2)
    assert torch.equal(whole, broken)


def run(*arguments: object, device: str = DEVICE) -> str:
    result = call(*arguments, "--device", device)
    assert result.exit_code == 0, said(result) + repr(result.exception)
    return said(result)


TASKS = {
    "classify": (gestures, "a.csv"),
    "tag": (tags, "a.csv"),
    "forecast": (series, "a.csv"),
    "translate": (pairs, "a.tsv"),
}


def table(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


@pytest.mark.parametrize("task", TASKS)
def test_a_task_from_file_to_answers(task: str, tmp_path: Path) -> None:
    make, name = TASKS[task]
    file = make(tmp_path / name)
    trained = run("train", file, "--out", tmp_path / "run", "--epochs", 8, "--units", 32)
    assert torch.cuda.get_device_name() in trained
    assert "runs on: " in run("explain", tmp_path / "run")
    page = (tmp_path / "run" / "report.html").read_text()
    assert "runs on: cpu" not in page
    for device in (DEVICE, "cpu"):
        run("predict", tmp_path / "run", file, "--out", tmp_path / f"{device}.csv", device=device)
    card, plain = table(tmp_path / f"{DEVICE}.csv"), table(tmp_path / "cpu.csv")
    assert len(card) == len(plain) > 1
    # A class at the very edge may fall to either side.
    same = sum(one[:2] == other[:2] for one, other in zip(card, plain, strict=True))
    assert same >= 0.95 * len(card)


def test_text(tmp_path: Path) -> None:
    run("train", text(tmp_path / "a.txt"), "--out", tmp_path / "run", "--epochs", 3, "--units", 32)
    cold = [
        run("decode", tmp_path / "run", "the ", "--length", 20, "--temperature", 0, device=d) for d in (DEVICE, "cpu")
    ]
    assert cold[0] == cold[1]
    warm = [run("decode", tmp_path / "run", "--length", 20, "--seed", 7, "--top-p", 0.9) for _ in range(2)]
    assert warm[0] == warm[1]


def test_a_run_begun_on_the_card_goes_on_there_and_on_the_cpu(tmp_path: Path) -> None:
    flags = ["train", str(gestures(tmp_path / "a.csv")), "--units", "16", "--epochs", "12", "--device", DEVICE]
    program = "import sys, os; from throughtime.cli import main; import throughtime as tt\n"
    program += "class Killer(tt.train.Progress):\n    def epoch(self, epoch):\n"
    program += "        epoch.number == 7 and os.kill(os.getpid(), 9)\ntt.train.Progress = Killer\nmain()"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    for name in ("cut", "moved"):
        command = [sys.executable, "-c", program, *flags, "--out", str(tmp_path / name)]
        killed = subprocess.run(command, capture_output=True, env=environment, timeout=120, check=False)
        assert killed.returncode == -9, killed.stderr.decode()
    run(*flags[:-2], "--out", tmp_path / "whole")
    run("train", "--resume", tmp_path / "cut")
    run("train", "--resume", tmp_path / "moved", device="cpu")
    whole, cut, moved = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "cut", "moved"))
    assert all(torch.equal(whole[name], cut[name]) for name in whole)
    assert all(moved[name].isfinite().all() for name in whole)


def test_torchrun_with_nccl(tmp_path: Path) -> None:
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1", "-m", "throughtime"]
    flags = ["train", str(gestures(tmp_path / "a.csv")), "--out", str(tmp_path / "run"), "--epochs", "2"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, *command, *flags], capture_output=True, text=True, env=environment, timeout=150, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "report.html").exists()


def test_bench_and_explain() -> None:
    sizes = ["--units", 32, "--inputs", 16, "--steps", 20, "--batch", 16]
    assert "torch.nn.LSTM" in run("bench", "lstm", *sizes, "--repeat", 3)
    assert "the plain loop" in run("bench", "LayerNormLSTMCell", *sizes, "--repeat", 2)
    assert "runs on: triton" in run("explain", "gru", *sizes)
    assert "@triton.jit" in call("explain", "gru", *sizes, "--source", "--device", DEVICE).stdout
