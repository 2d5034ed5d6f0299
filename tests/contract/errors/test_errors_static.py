"""`static_rnn` and `static_state_saving_rnn`: lists of steps that are none, and savers that cannot save."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from _error_rows import F32, F64, STEPS, ZEROS, B, H, I, Returning, Row, X, check, rows
from torch.nn.utils.rnn import pack_sequence

import throughtime as tt

pytestmark = pytest.mark.covers("errors")


def static(*args: Any, **options: Any) -> Any:
    return tt.static_rnn(*args, **{"dtype": F32, **options})


def saving(cell: Any, state_saver: Any, state_name: Any = "h", inputs: Any = STEPS) -> Any:
    return tt.static_state_saving_rnn(cell, inputs, state_saver, state_name)


class Saver(dict):
    state = dict.__getitem__
    save_state = dict.__setitem__


class ReadOnly:
    def state(self, _name: str) -> torch.Tensor:
        return ZEROS


STEP = torch.zeros(B, I)
INPUTS = [
    Row(f"steps {name}", error, says, lambda cell, value=value: static(cell, value))
    for name, value, error, *says in [
        (
            "a tensor",
            X,
            TypeError,
            "list of steps",
            "got a tensor of shape (2, 3, 4)",
            "`x.unbind(1)`",
            "tt.dynamic_rnn",
        ),
        ("None", None, TypeError, "list of steps", "got NoneType", "a list of T tensors [B, I]"),
        ("an array", X.numpy(), TypeError, "list of steps", "got ndarray"),
        ("a dict", {"a": STEP}, TypeError, "list of steps", "got dict"),
        ("text", "abc", TypeError, "list of steps", "got str"),
        ("a generator", (step for step in STEPS), TypeError, "list of steps", "got generator"),
        ("packed", pack_sequence([X[0]]), TypeError, "list of steps", "got PackedSequence"),
        ("an empty list", [], ValueError, "`inputs` must not be empty", "got no step", "at least one step"),
        ("an empty tuple", (), ValueError, "`inputs` must not be empty", "got no step"),
        ("empty themselves", [(), ()], ValueError, "`inputs` is empty", "at least one tensor"),
        ("numbers", [1.0, 2.0], ValueError, "`inputs`", "got shape ()", "[B, I]"),
        ("scalars", [torch.ones(())], ValueError, "`inputs`", "got shape ()", "[B, I]"),
        ("vectors for a core cell", [torch.ones(B)], ValueError, "wrong rank", "ndim=1", "ndim=2", "`x.unsqueeze(-1)`"),
        ("of rank 3", [torch.ones(B, 3, I)], ValueError, "wrong rank", "ndim=3", "ndim=2, [B, I]"),
        (
            "of different widths",
            [STEP, STEP[:, :3]],
            ValueError,
            "differs in shape from step 0",
            "got (2, 3)",
            "(2, 4)",
        ),
        (
            "of different batches",
            [STEP, STEP[:1]],
            ValueError,
            "not compatible",
            "got (1, 4)",
            "(2, 4)",
            "Pad every step",
        ),
        ("of different ranks", [STEP, STEP[0]], ValueError, "differs in shape from step 0", "got (4,)", "(2, 4)"),
        (
            "of different dtypes",
            [STEP, STEP.double()],
            TypeError,
            "differs in dtype from step 0",
            "got torch.float64",
            "torch.float32",
        ),
        ("on different devices", [STEP, STEP.to("meta")], ValueError, "different devices", "cpu", "meta"),
        ("of different kinds", [STEP, (STEP,)], ValueError, "step 1 of `inputs`", "got (*,)", "expected *"),
        ("of different keys", [{"a": STEP}, {"b": STEP}], ValueError, "step 1 of `inputs`", "got {'b': *}", "{'a': *}"),
        ("with a None", [STEP, None], TypeError, "`inputs`", "got NoneType"),
        ("of text", ["a", "b"], TypeError, "`inputs`", "got str", "tensors or numpy arrays"),
        ("packed each", [pack_sequence([X[0]])], TypeError, "`inputs`", "got PackedSequence"),
        ("sparse", [STEP.to_sparse()] * 2, TypeError, "`inputs`", "torch.sparse_coo", "`.to_dense()`"),
        ("integers", [STEP.long()], ValueError, "floating point inputs", "got torch.int64"),
    ]
]

ARGUMENTS = [
    Row(name, error, tuple(says), call)
    for name, call, error, *says in [
        ("no cell", lambda _: static(None, STEPS), TypeError, "`cell` is not an RNNCell", "got NoneType"),
        ("a class", lambda _: static(tt.GRUCell, STEPS), TypeError, "but a class", "`GRUCell(num_units)`"),
        ("no dtype", lambda cell: tt.static_rnn(cell, STEPS), ValueError, "`dtype` must be specified", "got neither"),
        (
            "another dtype",
            lambda cell: static(cell, STEPS, dtype=F64),
            TypeError,
            "`inputs` and `state` differ in dtype",
        ),
        ("dtype text", lambda cell: static(cell, STEPS, dtype="float32"), TypeError, "`dtype`", "got 'float32'"),
        ("scope 3", lambda cell: static(cell, STEPS, scope=3), TypeError, "`scope`", "got int", "a str or None"),
        (
            "lengths of rank 2",
            lambda cell: static(cell, STEPS, sequence_length=[[1, 2]]),
            ValueError,
            "must be a vector of length batch_size",
            "got shape (1, 2)",
        ),
        (
            "lengths for another batch",
            lambda cell: static(cell, STEPS, sequence_length=[1]),
            tt.InvalidArgumentError,
            "must be a vector of length batch_size",
            "got shape (1,)",
        ),
        (
            "a wide state",
            lambda cell: static(cell, STEPS, initial_state=torch.zeros(B, 6)),
            ValueError,
            "`initial_state` has the wrong shape",
            "got (2, 6)",
        ),
        # The third argument is the state here, and the lengths in `dynamic_rnn`.
        (
            "arguments in the order of dynamic_rnn",
            lambda cell: static(cell, STEPS, [1, 2]),
            ValueError,
            "`initial_state`",
        ),
        (
            "states of different dtypes with lengths",
            lambda _: tt.static_rnn(
                Returning(lambda _, s: (s[0], s), (H, H)), STEPS, (ZEROS, ZEROS.long()), sequence_length=[1, 2]
            ),
            ValueError,
            "different inferred dtypes",
            "Pass `dtype=`",
        ),
    ]
]

SAVING = [
    Row(name, error, tuple(says), call)
    for name, call, error, *says in [
        ("saver without a cell", lambda _: saving(None, Saver(h=ZEROS)), TypeError, "`cell` is not an RNNCell"),
        ("saver without steps", lambda cell: saving(cell, Saver(h=ZEROS), inputs=[]), ValueError, "must not be empty"),
        ("saver None", lambda cell: saving(cell, None), TypeError, "`state_saver`", "got NoneType", "save_state"),
        ("saver a dict", lambda cell: saving(cell, {"h": ZEROS}), TypeError, "`state_saver`", "got dict", "save_state"),
        ("saver that cannot save", lambda cell: saving(cell, ReadOnly()), TypeError, "`state_saver`", "save_state"),
        ("saver of nothing", lambda cell: saving(cell, Saver(h=None)), ValueError, "state_saver", "'h'", "got None"),
        ("saver of text", lambda cell: saving(cell, Saver(h="h")), TypeError, "got str"),
        (
            "saver of a wide state",
            lambda cell: saving(cell, Saver(h=torch.zeros(B, 6))),
            ValueError,
            "got (2, 6)",
            "(2, 5)",
        ),
        (
            "names for one tensor",
            lambda cell: saving(cell, Saver(h=ZEROS), ("h",)),
            ValueError,
            "`state_name` must name every part of `cell.state_size`",
            "got ('h',)",
            "one name for each tensor",
        ),
        (
            "one name for two tensors",
            lambda _: saving(tt.LSTMCell(H), Saver(h=ZEROS)),
            ValueError,
            "`state_name`",
            "got 'h'",
            "LSTMStateTuple(c=*, h=*)",
        ),
        (
            "three names for two tensors",
            lambda _: saving(tt.LSTMCell(H), Saver(h=ZEROS), ("c", "h", "x")),
            ValueError,
            "`state_name`",
            "got ('c', 'h', 'x')",
        ),
    ]
]


@rows([*INPUTS, *ARGUMENTS, *SAVING])
def test_wrong_arguments(row: Row) -> None:
    check(row)


def test_a_saver_may_fail_in_its_own_words() -> None:
    with pytest.raises(KeyError, match="missing"):
        saving(tt.GRUCell(H), Saver(), "missing")


def test_without_lengths_states_may_differ_in_dtype() -> None:
    cell = Returning(lambda _, s: (s[0], s), (H, H))
    outputs, _ = tt.static_rnn(cell, STEPS, initial_state=(ZEROS, ZEROS.long()))
    assert outputs[0].dtype == F32
