"""A training step of a TensorFlow 1 program in a session, beside the same model on our API.

    python benchmarks/tf1_session.py [--repeats 60]

First the gradients of both models at the same weights and the losses of five steps must agree. Then the steps are
timed in turn in one process; the figure is the ratio of the fastest. Goal: at most 1.10 at B32 T50 I64 H128, Adam.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import throughtime as tt
import throughtime.tf1 as tf

RATE, CLASSES = 1e-3, 10


class Sizes:
    """B sequences of T steps with I features, H units."""

    def __init__(self, batch: int, time_steps: int, width: int, units: int) -> None:
        self.B, self.T, self.I, self.H = batch, time_steps, width, units

    def data(self) -> tuple[Any, Any, Any]:
        random = np.random.RandomState(0)
        x = random.standard_normal((self.B, self.T, self.I)).astype(np.float32)
        lengths = random.randint(self.T // 2, self.T + 1, self.B).astype(np.int32)
        return x, lengths, random.randint(0, CLASSES, self.B).astype(np.int64)


def weights_of(sizes: Sizes) -> list[Any]:
    random = np.random.RandomState(1)
    shapes = [(sizes.I + sizes.H, 4 * sizes.H), (4 * sizes.H,), (sizes.H, CLASSES), (CLASSES,)]
    return [(0.1 * random.standard_normal(shape)).astype(np.float32) for shape in shapes]


def session_step(sizes: Sizes, with_lengths: bool) -> tuple[Callable[[], float], Callable[[], list[Any]]]:
    """The program as people wrote it."""
    tf.reset_default_graph()
    x = tf.placeholder(tf.float32, [None, sizes.T, sizes.I])
    n = tf.placeholder(tf.int32, [None])
    y = tf.placeholder(tf.int64, [None])
    cell = tf.nn.rnn_cell.BasicLSTMCell(sizes.H)
    _, state = tf.nn.dynamic_rnn(cell, x, n if with_lengths else None, dtype=tf.float32)
    w = tf.get_variable("w", [sizes.H, CLASSES])
    b = tf.get_variable("b", [CLASSES])
    logits = tf.matmul(state.h, w) + b
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    train = tf.train.AdamOptimizer(RATE).minimize(loss)
    variables = tf.trainable_variables()
    session = tf.Session()
    session.run(tf.global_variables_initializer())
    for variable, value in zip(variables, weights_of(sizes), strict=True):
        variable.load(value, session)
    data = sizes.data()

    gradients = tf.gradients(loss, variables)

    def feed() -> dict[Any, Any]:
        return {x: data[0], y: data[2], **({n: data[1]} if with_lengths else {})}

    def step() -> float:
        return float(session.run([loss, train], feed())[0])

    return step, lambda: session.run(gradients, feed())


def own_step(sizes: Sizes, with_lengths: bool) -> tuple[Callable[[], float], Callable[[], list[Any]]]:
    """The same model on our API, with TensorFlow's Adam written for torch's fused one."""
    cell = tt.BasicLSTMCell(sizes.H, input_size=sizes.I)
    head = torch.nn.Linear(sizes.H, CLASSES)
    kernel, bias, w, b = map(torch.from_numpy, weights_of(sizes))
    with torch.no_grad():
        for parameter, value in zip([*cell.parameters(), *head.parameters()], (kernel, bias, w.T, b), strict=True):
            parameter.copy_(value)
    # TensorFlow's epsilon is not divided by the bias correction; at 1e-8 the difference is below the tolerance.
    optimizer = torch.optim.Adam([*cell.parameters(), *head.parameters()], lr=RATE, eps=1e-8, fused=True)
    data = sizes.data()

    def backward() -> float:
        x, n, y = map(torch.from_numpy, data)
        optimizer.zero_grad()
        _, state = tt.dynamic_rnn(cell, x, n if with_lengths else None, dtype=torch.float32)
        loss = torch.nn.functional.cross_entropy(head(state.h), y)
        loss.backward()
        return loss.item()

    def step() -> float:
        loss = backward()
        optimizer.step()
        return loss

    def gradients() -> list[Any]:
        backward()
        found = [parameter.grad for parameter in (*cell.parameters(), *head.parameters())]
        return [one.T.numpy() if place == 2 else one.numpy() for place, one in enumerate(found) if one is not None]

    return step, gradients


def check(sizes: Sizes, with_lengths: bool, steps: int = 5) -> None:
    """Both models have the same gradients, and losses step by step."""
    (ours, our_gradients), (theirs, their_gradients) = session_step(sizes, with_lengths), own_step(sizes, with_lengths)
    for one, other in zip(our_gradients(), their_gradients(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-6)
    for _ in range(steps):
        np.testing.assert_allclose(ours(), theirs(), rtol=1e-4)


def measure(sizes: Sizes, with_lengths: bool, repeats: int) -> dict[str, float]:
    steps = {"session": session_step(sizes, with_lengths)[0], "own": own_step(sizes, with_lengths)[0]}
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(repeats):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - start)
    best = {name: min(found) for name, found in times.items()}
    return {**{f"{name}_ms": 1e3 * value for name, value in best.items()}, "ratio": best["session"] / best["own"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("B", 32), ("T", 50), ("I", 64), ("H", 128), ("repeats", 60)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    sizes = Sizes(options.B, options.T, options.I, options.H)
    for with_lengths in (False, True):
        check(sizes, with_lengths)
        found = measure(sizes, with_lengths, options.repeats)
        print(json.dumps({"lengths": with_lengths, **{key: round(value, 3) for key, value in found.items()}}))


if __name__ == "__main__":
    main()
