"""Inference against torch and against ONNX Runtime, whichever is faster.

Inputs are time-major, the only layout that ONNX Runtime knows. All outputs are compared before anything is timed.

    python benchmarks/inference.py [--quick]
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from full_speed import floor
from layouts import Row
from pairs import PAIRS, Pair
from peer import Peer, running, versions
from record import interleaved, ratio, summary, timed
from runs import backend_of, check, inference, ours, theirs
from shapes import ANCHORS, DENSE, TINY, Shape
from suite import Options, read_options, run_suite

CASES = [(kind, shape) for kind in PAIRS for shape in (DENSE if kind == "LSTM" else ANCHORS)]
QUICK = [(kind, TINY) for kind in PAIRS]


def load_peer(peer: Peer, kind: str, pair: Pair, inputs: Tensor) -> Tensor:
    """Give torch's weights to ONNX Runtime; its outputs."""
    weights = {name.removesuffix("_l0"): weight for name, weight in pair.module.named_parameters()}
    return peer.load({"kind": kind}, {"inputs": inputs, **weights})["outputs"]


def measure(options: Options, peer: Peer | None, case: tuple[str, Shape]) -> Row:
    kind, shape = case
    pair = PAIRS[kind](shape)
    pair.module.batch_first = False
    inputs = torch.randn(shape.T, shape.B, shape.I)
    our_step = inference(ours(pair.cell, time_major=True), inputs)
    their_step = inference(theirs(pair.module), inputs)
    want = their_step()
    difference = check(f"{kind} {shape}", our_step(), want)
    turns = {"throughtime": timed(our_step), "torch": timed(their_step)}
    if peer is not None:
        check(f"{kind} {shape} in ONNX Runtime", load_peer(peer, kind, pair, inputs), want)
        turns["onnxruntime"] = peer.turn
    seconds = interleaved(turns, rounds=options.rounds, seconds=options.seconds)
    times = {who: summary(taken) for who, taken in seconds.items()}
    against = {who: ratio(times[who], times["throughtime"]) for who in times if who != "throughtime"}
    return {
        "cell": kind,
        **shape.named(),
        **floor(kind, shape, training=False),
        **times,
        # Without the peer it is unknown which of the two is faster.
        "ratio": min(against.values()) if peer is not None else None,
        "against_torch": against["torch"],
        "against_onnxruntime": against.get("onnxruntime"),
        "backend": backend_of(pair.cell, inputs.transpose(0, 1)),
        "difference": difference,
    }


def main() -> None:
    options = read_options(__doc__ or "", seconds=2.0)
    with running("onnxruntime") as peer:
        cases = QUICK if options.quick else CASES
        run_suite("inference", cases, partial(measure, options, peer), options, versions("onnxruntime", peer))


if __name__ == "__main__":
    main()
