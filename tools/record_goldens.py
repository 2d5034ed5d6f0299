"""Record what TensorFlow 2.21 answers to every case of `golden_cases`.

    python tools/record_goldens.py --out tests/goldens            # record
    python tools/record_goldens.py --out tests/goldens --check    # record elsewhere and compare, changing nothing

Needs tensorflow and tf_keras 2.21 and numpy, nothing else. See tools/README.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from golden_cases import all_cases, seed_of
from golden_cells import build
from golden_file import Arrays, Case, Golden, in_units, read_goldens, write_goldens
from golden_unrolls import UNROLLS
from tensorflow1 import ONE_THREAD, tf

Nodes = dict[str, Any]


class Problem:
    """What a case is given: whole numbers drawn from a generator seeded by its name, and the placeholders they feed."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.drawn: Arrays = {}
        self.placeholders: Nodes = {}
        self._rng = np.random.Generator(np.random.PCG64(seed_of(case.name)))

    def draw(self, key: str, shape: Sequence[int], below: int | None = None) -> Any:
        low, high = (-127, 128) if below is None else (0, below)
        self.drawn[key] = self._rng.integers(low, high, tuple(shape), np.int8)
        return in_units(key, self.drawn[key], self.case.dtype)

    def inputs(self, spec: Any) -> Any:
        """The nest of placeholders that `spec` describes."""
        if isinstance(spec, list):
            return tuple(self.inputs(each) for each in spec)
        if "shape" not in spec:
            return {name: self.inputs(each) for name, each in spec.items()}
        batch, steps = self.case.batch, self.case.steps
        leading = (steps, batch) if self.case.time_major else (batch, steps)
        below = spec.get("below")
        return self._placeholder("inputs" if below is None else "ids", (*leading, *spec["shape"]), below)

    def initial_state(self, cells: Any) -> Any:
        """A state for the cell, or for each in a nest of cells; None when the case leaves it to the unroll."""
        return tf.nest.map_structure(self._state_of, cells) if self.case.initial_state else None

    def feeds(self) -> dict[Any, Any]:
        dtype = self.case.dtype
        return {node: in_units(key, self.drawn[key], dtype) for key, node in self.placeholders.items()}

    def _state_of(self, cell: Any) -> Any:
        shapes = [tf.TensorShape(size).as_list() for size in tf.nest.flatten(cell.state_size)]
        leaves = [self._placeholder("initial_state", (self.case.batch, *shape)) for shape in shapes]
        return tf.nest.pack_sequence_as(cell.state_size, leaves)

    def _placeholder(self, kind: str, shape: Sequence[int], below: int | None = None) -> Any:
        key = f"{kind}/{sum(each.startswith(kind) for each in self.drawn)}"
        values = self.draw(key, shape, below)
        self.placeholders[key] = tf.placeholder(values.dtype, values.shape)
        return self.placeholders[key]


def record(case: Case) -> Golden:
    """Run the case in TensorFlow: values, final state, and the gradients for random cotangents."""
    with tf.Graph().as_default(), tf.Session(config=ONE_THREAD) as session:
        problem = Problem(case)
        cells = build(case.cell, case.dtype)
        inputs = problem.inputs(case.inputs)
        outputs, state = UNROLLS[case.unroll](case, cells, inputs, problem.initial_state(cells))
        answers = _by_key("outputs", outputs, case.dtype) | _by_key("state", state, case.dtype)
        weights = {f"weights/{weight.op.name}": weight for weight in tf.trainable_variables()}
        own_weights = _set_weights(session, problem, weights)
        shapes = {key: found.shape for key, found in session.run(answers, problem.feeds()).items()}
        cotangents = [tf.constant(problem.draw(f"cotangent/{key}", shape)) for key, shape in shapes.items()]
        sources = {key: node for key, node in problem.placeholders.items() if node.dtype.is_floating} | weights
        found = session.run(answers | _gradients(answers, sources, cotangents), problem.feeds())
    return Golden(case, problem.drawn, own_weights | found)


def _by_key(kind: str, nest: Any, dtype: str) -> Nodes:
    """The leaves of the nest, whole numbers among them, in the dtype of the case."""
    return {f"{kind}/{index}": tf.cast(node, dtype) for index, node in enumerate(tf.nest.flatten(nest))}


def _set_weights(session: Any, problem: Problem, weights: Nodes) -> Arrays:
    """Draw all weights, or initialise them as the cell would and return what came of it."""
    session.run(tf.global_variables_initializer())
    if problem.case.initialised:
        return session.run(weights)
    drawn = {key: problem.draw(key, weight.shape.as_list()) for key, weight in weights.items()}
    session.run([tf.assign(weight, drawn[key]) for key, weight in weights.items()])
    return {}


def _gradients(answers: Nodes, sources: Nodes, cotangents: list[Any]) -> Nodes:
    """Of the sum of all answers times their cotangents; zero for sources that no answer depends on."""
    found = tf.gradients(list(answers.values()), list(sources.values()), cotangents, unconnected_gradients="zero")
    return {f"gradient/{key}": tf.convert_to_tensor(node) for key, node in zip(sources, found, strict=True)}


def _recorded(cases: Sequence[Case]) -> Iterator[Golden]:
    for count, case in enumerate(cases, 1):
        print(f"\r[{count:3}/{len(cases)}] {case.name:<100.100}", end="", file=sys.stderr, flush=True)
        yield record(case)
    print(file=sys.stderr)


def _differences(folder: Path, again: Path) -> list[str]:
    """What tells the two folders apart; nothing when the files are the same to the last byte."""
    names = sorted({path.name for each in (folder, again) for path in (*each.glob("*.jsonl"), *each.glob("*.npz"))})
    differing = [name for name in names if _content(folder / name) != _content(again / name)]
    return [f"{name} differs" for name in differing] + (_largest_differences(folder, again) if differing else [])


def _largest_differences(folder: Path, again: Path) -> list[str]:
    """How far apart the numbers are: a last digit (another CPU) or more (another answer)."""
    fresh = {golden.case.name: golden.expected for golden in read_goldens(again)}
    lines = []
    for golden in read_goldens(folder):
        found = fresh.get(golden.case.name, {})
        errors = [np.abs(array - found[key]).max(initial=0) for key, array in golden.expected.items() if key in found]
        if max(errors, default=0) > 0:
            lines.append(f"  {golden.case.name}: largest difference {max(errors):.1e}")
    return lines


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Record TensorFlow's answers to every golden case.")
    parser.add_argument("--out", type=Path, required=True, help="the folder of golden files")
    parser.add_argument("--check", action="store_true", help="record again and compare with --out, changing nothing")
    options = parser.parse_args(arguments)
    goldens = list(_recorded(all_cases()))
    if not options.check:
        written = write_goldens(options.out, goldens)
        size = sum(path.stat().st_size for path in written)
        print(f"{len(goldens)} cases, {len(written)} files, {size / 1024:.0f} KiB in {options.out}")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        write_goldens(Path(folder), goldens)
        differences = _differences(options.out, Path(folder))
    print("\n".join(differences) or f"{len(goldens)} cases recorded again: the same files, byte for byte")
    return bool(differences)


if __name__ == "__main__":
    sys.exit(main())
