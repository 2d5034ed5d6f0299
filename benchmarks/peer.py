"""The outside of a peer: finds its interpreter, starts it, and interleaves its measurements with the others.

Each peer has an environment of its own, made by `make peers`. `PEER_ONNXRUNTIME`, `PEER_TENSORFLOW`, `PEER_COMPANY` and
`PEER_MODELS` name another interpreter that has what is needed.

    python benchmarks/peer.py        says which peers are here
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

HERE = Path(__file__).parent
ENVIRONMENTS = {
    "onnxruntime": HERE.parent / ".venv-peers" / "onnxruntime" / "bin" / "python",
    "tensorflow": HERE.parent / ".venv-tf" / "bin" / "python",
    "company": HERE.parent / ".venv-peers" / "company" / "bin" / "python",
    "models": HERE.parent / ".venv-peers" / "models" / "bin" / "python",
}
PEERS = "onnxruntime", "tensorflow"
"""Those that answer; the other environments hold packages for processes of our own."""

REST = 0.1
"""Seconds until its threads sleep: those of ONNX Runtime spin for some 55 ms, and would take a core from the next."""


def interpreter(name: str) -> Path | None:
    """The Python of a peer; None where it is not installed."""
    chosen = os.environ.get(f"PEER_{name.upper()}")
    path = Path(chosen) if chosen else ENVIRONMENTS[name]
    if chosen and not path.exists():
        raise FileNotFoundError(f"PEER_{name.upper()} is {chosen}, and there is no such file")
    return path if path.exists() else None


class Peer:
    """A running peer: `load` a case, then give it turns."""

    def __init__(self, name: str, python: Path, folder: Path) -> None:
        self.name, self._folder, self._noise = name, folder, folder / "stderr.txt"
        with self._noise.open("w") as noise:
            self._process = subprocess.Popen(
                [python, HERE / f"peer_{name}.py"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=noise,
                text=True,
            )
        self.version: str = self._answer()["version"]

    def load(self, case: dict[str, Any], arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Give it weights and inputs; what it computes from them."""
        path = self._folder / "case.npz"
        content: dict[str, Any] = {name: array.detach().numpy() for name, array in arrays.items()}
        np.savez(path, **content)
        self._tell({"load": {**case, "threads": torch.get_num_threads()}, "arrays": str(path)})
        with np.load(self._answer()["answers"]) as answers:
            return {name: torch.from_numpy(answers[name]) for name in answers}

    def turn(self, calls: int) -> list[float]:
        """Its own seconds of a number of calls."""
        self._tell({"run": calls})
        seconds: list[float] = self._answer()["seconds"]
        time.sleep(REST)
        return seconds

    def close(self) -> None:
        self._process.communicate()

    def _tell(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": self._noise.read_text()[-2000:]}
        if "error" in answer:
            raise RuntimeError(f"the peer {self.name} failed:\n{answer['error']}")
        return answer


@contextmanager
def running(name: str) -> Iterator[Peer | None]:
    """A peer while the block runs; None, after a word about it, where it is not installed."""
    python = interpreter(name)
    if python is None:
        print(missing(name), file=sys.stderr)
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        peer = Peer(name, python, Path(folder))
        try:
            yield peer
        finally:
            peer.close()


def missing(name: str) -> str:
    return (
        f"{name} is not installed: `make peers` installs it, or PEER_{name.upper()}=PYTHON names an interpreter with it"
    )


def versions(name: str, peer: Peer | None) -> dict[str, str | None]:
    """For the file of results."""
    return {name: None if peer is None else peer.version}


if __name__ == "__main__":
    for each in PEERS:
        with running(each) as found:
            if found:
                print(f"{each} {found.version}: {interpreter(each)}")
