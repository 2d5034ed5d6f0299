"""Does a run that is killed at random moments, and resumed, end with the very same weights?

`python tools/kill_and_resume.py --moments 10` trains a small classifier once without interruption and once with ten
`kill -9`, each at a random moment, a checkpoint being written after every other step. It prints what happened and
compares what is left bit by bit: weights, optimiser, random numbers. After every kill, each checkpoint must be whole.
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
from pathlib import Path
from typing import Any


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


def start(folder: Path, epochs: int) -> subprocess.Popen[bytes]:
    """The run, in a process of its own."""
    command = [sys.executable, __file__, "--train", str(folder), "--epochs", str(epochs)]
    return subprocess.Popen(command, stderr=subprocess.PIPE)


def finish(process: subprocess.Popen[bytes]) -> None:
    _, errors = process.communicate()
    if process.returncode:
        raise RuntimeError(errors.decode())


def kill_at_a_random_moment(folder: Path, moment: float, epochs: int) -> str:
    """Start or resume the run, let it train for so many seconds, and kill it; what was seen."""
    before = _steps(folder)
    process = start(folder, epochs)
    while _steps(folder) <= before and process.poll() is None:
        time.sleep(0.01)
    time.sleep(moment)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    unfinished = [path.name for path in folder.glob(".*")]
    return (
        f"killed {moment:.2f} s after its first step, at step {_steps(folder)}; half written: {unfinished or 'nothing'}"
    )


def _steps(folder: Path) -> int:
    """How far the history on disk goes."""
    path = folder / "history.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return sum('"kind": "step"' in line for line in lines)


def check_whole(folder: Path) -> int:
    """Read every checkpoint; how many there are."""
    from safetensors import safe_open  # noqa: PLC0415

    found = list(folder.glob("checkpoint-*"))
    for checkpoint in found:
        json.loads((checkpoint / "training.json").read_text())
        for path in checkpoint.glob("*.safetensors"):
            with safe_open(path, "pt") as file:
                for name in file.keys():  # noqa: SIM118
                    file.get_tensor(name)
    return len(found)


def fingerprint(folder: Path) -> str:
    """The final weights, the optimiser and the random numbers, in one number."""
    (last,) = folder.glob("checkpoint-*-epoch")
    parts = [(last / name).read_bytes() for name in ("model.safetensors", "training.safetensors")]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def compare(folder: Path, moments: int, seed: int, epochs: int) -> tuple[str, str]:
    """Both runs; the fingerprint of each."""
    whole, broken = folder / "whole", folder / "broken"
    finish(start(whole, epochs))
    print(f"without interruption: {_steps(whole)} steps")
    chance = random.Random(seed)
    broken.mkdir()
    for number in range(moments):
        print(f"{number + 1:2d}. {kill_at_a_random_moment(broken, chance.uniform(0, 0.25), epochs)}; ", end="")
        print(f"whole checkpoints: {check_whole(broken)}", flush=True)
    finish(start(broken, epochs))
    print(f"resumed to the end: {_steps(broken)} steps")
    return fingerprint(whole), fingerprint(broken)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--moments", type=int, default=10)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--epochs", type=int, default=12)
    arguments.add_argument("--train", type=Path, help=argparse.SUPPRESS)
    chosen = arguments.parse_args()
    if chosen.train is not None:
        train(chosen.train, chosen.epochs)
        return
    with tempfile.TemporaryDirectory() as folder:
        whole, broken = compare(Path(folder), chosen.moments, chosen.seed, chosen.epochs)
    print(f"weights, optimiser and random numbers: {whole[:16]} and {broken[:16]}")
    print("bit-identical" if whole == broken else "DIFFERENT")
    sys.exit(whole != broken)


if __name__ == "__main__":
    main()
