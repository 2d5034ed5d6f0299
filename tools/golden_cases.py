"""The cases to record, as tables: cells, ways to call them, and which meet which. Needs numpy only."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from golden_file import Case

Cell = dict[str, Any]


def leaf(*shape: int, below: int | None = None) -> dict[str, Any]:
    return {"shape": list(shape)} | ({} if below is None else {"below": below})


def cell(name: str, /, **arguments: Any) -> Cell:
    return {"class": name, **arguments}


def rnn(units: int = 4, **arguments: Any) -> Cell:
    return cell("BasicRNNCell", num_units=units, **arguments)


def gru(units: int = 4, **arguments: Any) -> Cell:
    return cell("GRUCell", num_units=units, **arguments)


def basic_lstm(units: int = 4, **arguments: Any) -> Cell:
    return cell("BasicLSTMCell", num_units=units, **arguments)


def lstm(units: int = 4, **arguments: Any) -> Cell:
    return cell("LSTMCell", num_units=units, **arguments)


def multi(*cells: Cell, **arguments: Any) -> Cell:
    return cell("MultiRNNCell", cells=list(cells), **arguments)


def dropout(inner: Cell, **arguments: Any) -> Cell:
    return cell("DropoutWrapper", cell=inner, **arguments)


def function(name: str) -> dict[str, str]:
    """A function known by this name on both sides."""
    return {"function": name}


# So small that nothing is ever kept: dropout without chance. What is scaled by 1 / DROP is always exactly zero.
DROP = 1e-10
VARIATIONAL: dict[str, Any] = {"variational_recurrent": True, "dtype": "case", "input_size": 3}
CLIPPED_PEEPHOLES: dict[str, Any] = {"use_peepholes": True, "cell_clip": 0.2, "num_proj": 3, "proj_clip": 0.02}

CELLS: dict[str, Cell] = {
    "basic_rnn": rnn(),
    "basic_rnn-relu": rnn(activation="relu"),
    "gru": gru(),
    "gru-relu": gru(activation="relu"),
    "basic_lstm": basic_lstm(),
    "basic_lstm-forget_bias=0": basic_lstm(forget_bias=0.0),
    "basic_lstm-forget_bias=2.5": basic_lstm(forget_bias=2.5),
    "basic_lstm-relu": basic_lstm(activation="relu"),
    "basic_lstm-concat_state": basic_lstm(state_is_tuple=False),
    "lstm": lstm(),
    "lstm-forget_bias=0": lstm(forget_bias=0.0),
    "lstm-forget_bias=2.5": lstm(forget_bias=2.5),
    "lstm-relu": lstm(activation="relu"),
    "lstm-sigmoid": lstm(activation="sigmoid"),
    "lstm-named": lstm(name="memory"),
    "lstm-peepholes": lstm(use_peepholes=True),
    "lstm-cell_clip": lstm(cell_clip=0.2),
    "lstm-cell_clip=0": lstm(cell_clip=0.0),
    "lstm-peepholes-cell_clip": lstm(use_peepholes=True, cell_clip=0.2),
    "lstm-narrow_proj": lstm(num_proj=2),
    "lstm-wide_proj": lstm(num_proj=6),
    "lstm-proj_clip": lstm(num_proj=3, proj_clip=0.1),
    "lstm-cell_clip-proj": lstm(cell_clip=0.2, num_proj=3),
    "lstm-peepholes-proj": lstm(use_peepholes=True, num_proj=3),
    "lstm-everything": lstm(**CLIPPED_PEEPHOLES, forget_bias=0.5, activation="relu"),
    "lstm-concat_state": lstm(state_is_tuple=False),
    "lstm-concat_state-proj": lstm(state_is_tuple=False, num_proj=3),
    "lstm-concat_state-everything": lstm(**CLIPPED_PEEPHOLES, state_is_tuple=False, forget_bias=0.5),
    "multi-lstm": multi(lstm(), lstm()),
    "multi-one": multi(gru()),
    "multi-mixed": multi(lstm(5, use_peepholes=True), gru(4), rnn(3), basic_lstm(2)),
    "multi-shared": cell("MultiRNNCell", cells={"repeat": lstm(), "times": 2}),
    "multi-nested": multi(multi(lstm(), gru()), rnn()),
    "multi-concat_state": multi(gru(4), rnn(3), state_is_tuple=False),
    "multi-concat_state-lstm": multi(
        lstm(3, state_is_tuple=False), basic_lstm(4, state_is_tuple=False), state_is_tuple=False
    ),
    "residual-gru": cell("ResidualWrapper", cell=gru()),
    "residual-lstm": cell("ResidualWrapper", cell=lstm()),
    "residual-multi": cell("ResidualWrapper", cell=multi(lstm(), gru())),
    "residual-residual_fn": cell("ResidualWrapper", cell=gru(), residual_fn=function("outputs_minus_half_inputs")),
    "multi-residual": multi(lstm(), cell("ResidualWrapper", cell=lstm())),
    "dropout-keep_all": dropout(lstm(), input_keep_prob=1.0, output_keep_prob=1.0, state_keep_prob=1.0),
    "dropout-input": dropout(gru(), input_keep_prob=DROP),
    "dropout-output": dropout(gru(), output_keep_prob=DROP),
    "dropout-state": dropout(gru(), state_keep_prob=DROP),
    "dropout-state-lstm": dropout(lstm(), state_keep_prob=DROP),
    "dropout-state-concat_state": dropout(lstm(state_is_tuple=False), state_keep_prob=DROP),
    "dropout-state-multi": dropout(multi(lstm(), gru()), state_keep_prob=DROP),
    "dropout-state-filter": dropout(lstm(), state_keep_prob=DROP, dropout_state_filter_visitor=function("only_c")),
    "dropout-variational-keep_all": dropout(lstm(), **VARIATIONAL),
    "dropout-variational-input": dropout(gru(), input_keep_prob=DROP, **VARIATIONAL),
    "dropout-variational-output": dropout(gru(), output_keep_prob=DROP, **VARIATIONAL),
    "dropout-variational-state": dropout(lstm(), state_keep_prob=DROP, **VARIATIONAL),
    "multi-dropout": multi(dropout(lstm(), input_keep_prob=1.0), dropout(gru(), state_keep_prob=DROP)),
    "device": cell("DeviceWrapper", cell=lstm(), device="cpu:0"),
    "device-dropout-residual": cell(
        "DeviceWrapper", cell=dropout(cell("ResidualWrapper", cell=lstm()), input_keep_prob=1.0), device="cpu:0"
    ),
    "input_projection": cell("InputProjectionWrapper", cell=gru(), num_proj=2),
    "input_projection-relu": cell("InputProjectionWrapper", cell=lstm(), num_proj=2, activation="relu"),
    "output_projection": cell("OutputProjectionWrapper", cell=rnn(), output_size=2),
    "output_projection-tanh": cell("OutputProjectionWrapper", cell=lstm(), output_size=2, activation="tanh"),
    "output_projection-multi": cell("OutputProjectionWrapper", cell=multi(lstm(), gru()), output_size=2),
    "embedding": cell("EmbeddingWrapper", cell=gru(), embedding_classes=7, embedding_size=3),
    "embedding-output_projection": cell(
        "OutputProjectionWrapper",
        cell=cell("EmbeddingWrapper", cell=lstm(), embedding_classes=7, embedding_size=3),
        output_size=2,
    ),
    "own-nested": cell("NestedCell"),
    "own-weights": cell("WeightedCell", num_units=4),
}

INPUTS: dict[str, Any] = {
    "multi-shared": leaf(4),
    "residual-gru": leaf(4),
    "residual-lstm": leaf(4),
    "residual-multi": leaf(4),
    "residual-residual_fn": leaf(4),
    "device-dropout-residual": leaf(4),
    "embedding": leaf(1, below=7),
    "embedding-output_projection": leaf(1, below=7),
    "own-nested": [leaf(3), {"grid": leaf(2, 2)}],
}

# Cells whose weights stay as their initialisers left them, which makes the initialisers part of what is recorded.
INITIALISED: dict[str, Cell] = {
    "lstm-constant": lstm(initializer={"constant": 0.25}),
    "lstm-constant-everything": lstm(**CLIPPED_PEEPHOLES, initializer={"constant": -0.25}),
    "gru-constant": gru(kernel_initializer={"constant": 0.25}),
    "gru-constant-bias": gru(kernel_initializer={"constant": -0.25}, bias_initializer={"constant": 0.5}),
    "embedding-constant": cell(
        "EmbeddingWrapper",
        cell=gru(kernel_initializer={"constant": 0.25}),
        embedding_classes=7,
        embedding_size=3,
        initializer={"constant": 0.5},
    ),
}

CORE = ("basic_rnn", "gru", "basic_lstm", "lstm")
SOME = (
    *CORE,
    "lstm-everything",
    "lstm-concat_state-proj",
    "multi-mixed",
    "residual-gru",
    "dropout-state-lstm",
    "own-nested",
)


@dataclass(frozen=True)
class Call:
    """How a cell is run: everything about a case except the cell."""

    dtype: str = "float32"
    lengths: str = "edges"
    time_major: bool = False
    initial_state: bool = True
    batch: int = 5
    steps: int = 4

    def label(self) -> str:
        major = "time_major" if self.time_major else "batch_major"
        state = "state" if self.initial_state else "zero_state"
        return f"{self.dtype}-{major}-{self.lengths}-{state}"


SINGLE = Call()
DOUBLE = Call(dtype="float64", lengths="random", time_major=True, batch=3, steps=5)
DENSE = Call(lengths="none", initial_state=False, batch=3, steps=5)
DENSE_DOUBLE = Call(dtype="float64", lengths="none", initial_state=False, batch=3, steps=5)
TIME_MAJOR_DOUBLE = Call(dtype="float64", time_major=True)


def lengths_of(kind: str, batch: int, steps: int, seed: int) -> list[int] | None:
    """The lengths that `kind` stands for; `random` has at least one row without steps and one with all."""
    rng = np.random.Generator(np.random.PCG64(seed))
    drawn = [0, steps, *rng.integers(0, steps + 1, batch - 2)]
    kinds = {
        "none": None,
        "edges": [steps, 0, 1, steps - 1, steps // 2],
        "random": rng.permutation(drawn).tolist(),
        "full": [steps] * batch,
        "zero": [0] * batch,
        "short": [2, 0, 1, 2, 1],
        "beyond": [steps + 3, 1, steps, steps + 1, 0],
    }
    return kinds[kind]


def seed_of(name: str) -> int:
    return zlib.crc32(name.encode())


def case(unroll: str, cell_name: str, call: Call, *, label: str = "", **overrides: Any) -> Case:
    """The case of a cell in the tables above, unless `overrides` gives another."""
    name = f"{unroll}/{cell_name}/{label}{call.label()}"
    settings: dict[str, Any] = {
        "cell": CELLS.get(cell_name),
        "inputs": INPUTS.get(cell_name, leaf(3)),
        "batch": call.batch,
        "steps": call.steps,
        "dtype": call.dtype,
        "time_major": call.time_major,
        "lengths": lengths_of(call.lengths, call.batch, call.steps, seed_of(name)),
        "initial_state": call.initial_state,
    }
    return Case(name=name, **(settings | overrides))


def dynamic_cases() -> Iterator[Case]:
    for name, call in product(CELLS, (SINGLE, DOUBLE)):
        yield case("dynamic_rnn", name, call)
    for name, lengths in product(CORE, ("none", "full", "zero", "short", "beyond")):
        yield case("dynamic_rnn", name, Call(lengths=lengths, initial_state=False))
        yield case("dynamic_rnn", name, Call(lengths=lengths, time_major=True))
    for name, spec in INITIALISED.items():
        inputs = INPUTS["embedding"] if "embedding" in name else leaf(3)
        yield case("dynamic_rnn", name, SINGLE, label="initialised-", cell=spec, inputs=inputs, initialised=True)
    yield case("dynamic_rnn", "multi-mixed", SINGLE, label="scope-", scope="encoder")
    # A state of several dtypes, one of them a scalar that no length masks.
    for call in (DENSE, Call(lengths="short", initial_state=False)):
        yield case("dynamic_rnn", "own-counting", call, cell=cell("CountingCell"))


def static_cases() -> Iterator[Case]:
    for name, call in product(SOME, (SINGLE, DENSE_DOUBLE)):
        yield case("static_rnn", name, call)
    for name, lengths in product(("gru", "lstm"), ("zero", "short", "beyond")):
        yield case("static_rnn", name, Call(lengths=lengths))
    # static_rnn also takes plain vectors of ids.
    yield case("static_rnn", "embedding", SINGLE, label="vector-", inputs=leaf(below=7))
    for name in (*CORE, "lstm-concat_state", "multi-lstm", "multi-mixed"):
        yield case("static_state_saving_rnn", name, SINGLE)
        yield case("static_state_saving_rnn", name, Call(dtype="float64", lengths="none", batch=3))


def step_cases() -> Iterator[Case]:
    """One call of the cell, without any unroll."""
    names = (*SOME, "lstm-peepholes", "input_projection", "output_projection")
    for name, dtype in product(names, ("float32", "float64")):
        yield case("step", name, Call(dtype=dtype, lengths="none", steps=1))


PAIRS: dict[str, Any] = {
    "basic_rnn": [rnn(), rnn()],
    "gru-widths": [gru(4), gru(3)],
    "lstm": [lstm(), lstm()],
    "lstm-gru": [lstm(use_peepholes=True, num_proj=3), gru()],
    "multi": [multi(lstm(), gru()), multi(rnn(3), basic_lstm())],
    "same_object": {"repeat": gru(), "times": 2},
}
STACKS: dict[str, Any] = {
    "gru": [[gru(3), gru(4)], [gru(4), gru(2)]],
    "lstm": [[lstm(3), lstm(3)], [lstm(3), lstm(3)]],
    "mixed": [[lstm(3, num_proj=2), gru(3), rnn(2)], [basic_lstm(3), rnn(2), gru(3)]],
}


def bidirectional_cases() -> Iterator[Case]:
    for name, call in product(PAIRS, (SINGLE, DENSE, DOUBLE)):
        yield case("bidirectional_dynamic_rnn", name, call, cell=PAIRS[name])
    for name, call in product(PAIRS, (SINGLE, DENSE_DOUBLE)):
        yield case("static_bidirectional_rnn", name, call, cell=PAIRS[name])
    for name, call in product(STACKS, (SINGLE, DENSE_DOUBLE)):
        yield case("stack_bidirectional_rnn", name, call, cell=STACKS[name])
    for name, call in product(STACKS, (SINGLE, DENSE, DOUBLE)):
        yield case("stack_bidirectional_dynamic_rnn", name, call, cell=STACKS[name])


def loop_cases() -> Iterator[Case]:
    for name, loop_fn in product(("gru", "lstm", "multi-mixed"), ("read_inputs", "own_emission")):
        yield case("raw_rnn", name, TIME_MAJOR_DOUBLE, label=f"{loop_fn}-", loop_fn=loop_fn)
        yield case("raw_rnn", name, Call(lengths="short", time_major=True), label=f"{loop_fn}-", loop_fn=loop_fn)
    for name in CORE:
        call = Call(lengths="short", time_major=True)
        yield case("raw_rnn", name, call, label="feed_back-", loop_fn="feed_back", inputs=leaf(4))
    for name, dtype in product((*CORE, "multi-mixed"), ("float32", "float64")):
        yield case("while_loop", name, Call(dtype=dtype, lengths="none", time_major=True, batch=3))


def all_cases() -> list[Case]:
    """Every case; their names are unique."""
    return [*dynamic_cases(), *static_cases(), *step_cases(), *bidirectional_cases(), *loop_cases()]
