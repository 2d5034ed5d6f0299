"""Does a run that is killed at random moments, and resumed, end with the very same weights?

`python tools/kill_and_resume.py --moments 10` trains a small classifier once without interruption and once with ten
`kill -9`, each at a random moment, a checkpoint being written after every other step. It prints what happened and
compares what is left bit by bit: weights, optimiser, random numbers. After every kill, each checkpoint must be whole.
With `--command` the run is one of `throughtime train`, killed while it starts, learns, and writes its results.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# What to start for a folder and a number of epochs, again and again.
Job = Callable[[Path, int], list[str]]
# Seconds that a kill comes after the start, the first new step, or the last epoch.
STARTING, LEARNING, ENDING = (0.0, 3.0), (0.0, 0.25), (0.0, 0.4)


def train(folder: Path, epochs: int) -> None:
    """The run: dropout from two generators, a schedule, a validation, truncation; resumed if it can be."""
    import numpy as np  # noqa: PLC0415
    import torch  # noqa: PLC0415
    from torch import nn  # noqa: PLC0415

    import throughtime as tt  # noqa: PLC0415
    from throughtime.data import japanese_vowels  # noqa: PLC0415

    class Listener(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            cell = tt.DropoutWrapper(tt.LSTMCell(24, input_size=12), output_keep_prob=0.8, seed=3)
            self.cell, self.out = cell, nn.Sequential(nn.Dropout(0.3), nn.Linear(24, 9))

        def forward(self, inputs: torch.Tensor, lengths: torch.Tensor, state: Any) -> tuple[torch.Tensor, Any]:
            outputs, state = tt.dynamic_rnn(self.cell, inputs, lengths, state, torch.float32)
            return self.out(outputs), state

    def measure(model: nn.Module, batch: tt.train.Batch, state: Any) -> tuple[dict[str, tt.train.Mean], Any]:
        scores, state = model(batch.inputs, batch.lengths, state)
        return {"loss": tt.train.cross_entropy(scores, batch.targets, batch.lengths)}, state

    # Every generator that a checkpoint holds: nothing draws from the last two, but they are compared as well.
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    torch.set_num_threads(1)
    heard = japanese_vowels()
    examples = [
        [(x, speaker.expand(len(x))) for x, speaker in zip(part.sequences, part.speakers, strict=True)]
        for part in heard
    ]
    model = Listener()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=epochs * 40)
    tt.train.fit(
        model,
        measure,
        tt.train.loader(examples[0], 32),
        tt.train.loader(examples[1][:64], 64, shuffle=False),
        optimizer=optimizer,
        epochs=epochs,
        schedule=schedule,
        clip_norm=1.0,
        truncate=10,
        folder=folder,
        checkpoint_every=2,
        resume=True,
    )
    (folder / "done").touch()


def loop(folder: Path, epochs: int) -> list[str]:
    """The run above, in a process of its own."""
    return [sys.executable, __file__, "--train", str(folder), "--epochs", str(epochs)]


def command(folder: Path, epochs: int) -> list[str]:
    """`throughtime train`, resumed once there is something to resume."""
    begun = (folder / "run.json").exists()
    flags = ["--resume", folder] if begun else ["--out", folder, "--epochs", epochs, "--units", 16]
    return [sys.executable, "-m", "throughtime", "train", *map(str, flags)]


def start(line: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finish(line: list[str]) -> None:
    """Let it run to its end."""
    process = start(line)
    _, errors = process.communicate()
    if process.returncode:
        raise RuntimeError(errors.decode())


def kill_while_starting(line: list[str], _: Path, moment: float) -> str:
    """Kill a process `moment` seconds after its start; what was seen."""
    process = start(line)
    time.sleep(moment)
    return _kill(process, f"{moment:.2f} s after its start")


def kill_while_learning(line: list[str], folder: Path, moment: float) -> str:
    """The same, `moment` seconds after its first new step."""
    before = _steps(folder)
    process = start(line)
    _wait(process, lambda: _steps(folder) > before)
    time.sleep(moment)
    return _kill(process, f"{moment:.2f} s after its first step")


def kill_while_ending(line: list[str], folder: Path, moment: float) -> str:
    """The same, `moment` seconds after its last epoch."""
    process = start(line)
    _wait(process, lambda: any('"kind": "end"' in text for text in _history(folder)))
    time.sleep(moment)
    return _kill(process, f"{moment:.2f} s after its last epoch")


def _wait(process: subprocess.Popen[bytes], until: Callable[[], bool]) -> None:
    while not until() and process.poll() is None:
        time.sleep(0.01)


def _kill(process: subprocess.Popen[bytes], when: str) -> str:
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return f"killed {when}" if process.returncode < 0 else f"ended before it could be killed {when}"


def kills(job: Job, moments: int, chance: random.Random) -> list[tuple[Callable[..., str], float]]:
    """When to kill: a loop while it learns; the command also while it starts and while it writes its results."""
    if job is loop:
        return [(kill_while_learning, chance.uniform(*LEARNING)) for _ in range(moments)]
    ending = max(1, moments // 5)
    early = [
        (kill_while_learning, chance.uniform(*LEARNING))
        if number % 2
        else (kill_while_starting, chance.uniform(*STARTING))
        for number in range(moments - ending)
    ]
    return [*early, *[(kill_while_ending, chance.uniform(*ENDING)) for _ in range(ending)]]


def _steps(folder: Path) -> int:
    """How far the history on disk goes."""
    return sum('"kind": "step"' in line for line in _history(folder))


def _history(folder: Path) -> list[str]:
    path = folder / "history.jsonl"
    return path.read_text().splitlines() if path.exists() else []


def check_whole(folder: Path) -> int:
    """Read every checkpoint; how many there are."""
    from safetensors import safe_open  # noqa: PLC0415

    found = list(folder.glob("checkpoint-*"))
    if (folder / "run.json").exists():
        json.loads((folder / "run.json").read_text())
    for checkpoint in found:
        json.loads((checkpoint / "training.json").read_text())
        for path in checkpoint.glob("*.safetensors"):
            with safe_open(path, "pt") as file:
                for name in file.keys():  # noqa: SIM118
                    file.get_tensor(name)
    return len(found)


def fingerprint(folder: Path) -> str:
    """The final weights, the optimiser and the random numbers, in one number; nothing half written is left."""
    (last,) = folder.glob("checkpoint-*-epoch")
    parts = [last / name for name in ("model.safetensors", "training.safetensors")]
    if (folder / "run.json").exists():
        parts.append(folder / "model.safetensors")
        if "metrics" not in json.loads((folder / "run.json").read_text()):
            raise RuntimeError("the run does not say how it ended")
        if not (folder / "report.html").read_text(encoding="utf-8").rstrip().endswith("</html>"):
            raise RuntimeError("the report is not whole")
    if left := [path.name for path in folder.glob(".*")]:
        raise RuntimeError(f"left behind: {left}")
    return hashlib.sha256(b"".join(part.read_bytes() for part in parts)).hexdigest()


def compare(folder: Path, moments: int, seed: int, epochs: int, job: Job = loop) -> tuple[str, str]:
    """Both runs; the fingerprint of each."""
    whole, broken = folder / "whole", folder / "broken"
    finish(job(whole, epochs))
    print(f"without interruption: {_steps(whole)} steps")
    for number, (kill, moment) in enumerate(kills(job, moments, random.Random(seed)), 1):
        seen = kill(job(broken, epochs), broken, moment)
        unfinished = [path.name for path in broken.glob(".*")]
        print(f"{number:2d}. {seen}, at step {_steps(broken)}; half written: {unfinished or 'nothing'}; ", end="")
        print(f"whole checkpoints: {check_whole(broken)}", flush=True)
    finish(job(broken, epochs))
    print(f"resumed to the end: {_steps(broken)} steps")
    return fingerprint(whole), fingerprint(broken)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--moments", type=int, default=10)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--epochs", type=int, default=12)
    arguments.add_argument("--command", action="store_true", help="kill `throughtime train` instead of `tt.train.fit`")
    arguments.add_argument("--train", type=Path, help=argparse.SUPPRESS)
    chosen = arguments.parse_args()
    if chosen.train is not None:
        train(chosen.train, chosen.epochs)
        return
    with tempfile.TemporaryDirectory() as folder:
        job = command if chosen.command else loop
        whole, broken = compare(Path(folder), chosen.moments, chosen.seed, chosen.epochs, job)
    print(f"weights, optimiser and random numbers: {whole[:16]} and {broken[:16]}")
    print("bit-identical" if whole == broken else "DIFFERENT")
    sys.exit(whole != broken)


if __name__ == "__main__":
    main()
