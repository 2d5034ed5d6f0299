"""Wrappers: dropout, residual, devices, projections and embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from _error_rows import F32, I64, B, H, Returning, Row, T, X, check, rows, run

import throughtime as tt

pytestmark = pytest.mark.covers("errors")

IDS = torch.zeros(B, T, 1, dtype=I64)


def gru() -> tt.GRUCell:
    return tt.GRUCell(H)


def pair() -> Returning:
    """A cell with two outputs."""
    return Returning(lambda _, s: ((s, s), s), output_size=(H, H))


WRAPPERS = {
    tt.DropoutWrapper: {},
    tt.ResidualWrapper: {},
    tt.DeviceWrapper: {"device": "cpu"},
    tt.InputProjectionWrapper: {"num_proj": 3},
    tt.OutputProjectionWrapper: {"output_size": 3},
    tt.EmbeddingWrapper: {"embedding_classes": 7, "embedding_size": 3},
}

CELLS = [
    Row(
        f"{kind.__name__} of {name}",
        TypeError,
        ("`cell` is not an RNNCell", got),
        lambda _, k=kind, c=cell: k(c, **WRAPPERS[k]),
    )
    for kind in WRAPPERS
    for name, cell, got in [
        ("None", None, "got NoneType"),
        ("a class", tt.GRUCell, "got the class GRUCell"),
        ("a list", [tt.GRUCell(H)], "got list"),
        ("a torch cell", torch.nn.GRUCell(2, 3), "got GRUCell without state_size"),
    ]
]

KEEP_PROBS = [
    Row(f"{name} {value!r}", error, (f"`{name}`", *says), lambda _, o={name: value}: tt.DropoutWrapper(gru(), **o))
    for name in ("input_keep_prob", "output_keep_prob", "state_keep_prob")
    for value, error, *says in [
        (0, ValueError, "got 0", "0 < keep_prob <= 1", "one minus the rate"),
        (0.0, ValueError, "got 0.0", "0 < keep_prob <= 1"),
        (-0.1, ValueError, "got -0.1", "0 < keep_prob <= 1"),
        (1.1, ValueError, "got 1.1", "0 < keep_prob <= 1"),
        (float("nan"), ValueError, "got nan"),
        ("a", TypeError, "got 'a'", "number"),
        (None, TypeError, "got None", "number"),
        ([0.5], TypeError, "got [0.5]", "number"),
        (True, TypeError, "got True", "number"),
        (torch.ones(2), ValueError, "must be a scalar", "got shape (2,)", "shape ()"),
        (torch.tensor(2.0), tt.InvalidArgumentError, "0 < keep_prob <= 1"),
        (torch.tensor(0.0), tt.InvalidArgumentError, "0 < keep_prob <= 1"),
    ]
]

DROPOUT = [
    Row(f"DropoutWrapper {name}", error, tuple(says), lambda _, o=options: tt.DropoutWrapper(gru(), **o))
    for name, options, error, *says in [
        ("variational", {"variational_recurrent": True}, ValueError, "needs `dtype`", "`dtype=torch.float32`"),
        (
            "variational on inputs",
            {"variational_recurrent": True, "dtype": F32, "input_keep_prob": 0.5},
            ValueError,
            "needs `input_size`",
            "the width of the inputs",
            "torch.Size",
        ),
        ("dtype text", {"variational_recurrent": True, "dtype": "f"}, TypeError, "`dtype`", "got 'f'"),
        ("flag text", {"variational_recurrent": "no"}, TypeError, "`variational_recurrent`", "True or False"),
        ("seed text", {"seed": "a"}, TypeError, "`seed`", "got 'a'"),
        ("seed 1.5", {"seed": 1.5}, TypeError, "`seed`", "got 1.5"),
        ("visitor 5", {"dropout_state_filter_visitor": 5}, TypeError, "`dropout_state_filter_visitor`", "got 5"),
    ]
]


def filtered(verdict: Any) -> tt.DropoutWrapper:
    """Dropout of the parts of a state that `verdict` says."""
    return tt.DropoutWrapper(tt.LSTMCell(H), state_keep_prob=0.5, dropout_state_filter_visitor=lambda _: verdict)


def variational(input_size: int) -> tt.DropoutWrapper:
    return tt.DropoutWrapper(gru(), 0.5, variational_recurrent=True, input_size=input_size, dtype=F32)


def dropped_ids() -> tt.DropoutWrapper:
    return tt.DropoutWrapper(tt.EmbeddingWrapper(gru(), 7, 3), 0.5)


DROPPED = [
    Row(f"dropout {name}", ValueError, tuple(says), lambda _, make=make, inputs=inputs: run(make(), inputs))
    for name, make, inputs, *says in [
        ("visitor to None", lambda: filtered(None), X, "`dropout_state_filter_visitor`", "got None", "a bool"),
        ("visitor to text", lambda: filtered("yes"), X, "`dropout_state_filter_visitor`", "got 'yes'", "a bool"),
        ("visitor to too few", lambda: filtered((True,)), X, "`dropout_state_filter_visitor`", "got (True,)", "a bool"),
        ("of ids", dropped_ids, IDS, "dropout cannot scale the input", "got torch.int64", "a floating point tensor"),
        ("of another width", lambda: variational(9), X, "`input_size`", "9", "4"),
    ]
]

RESIDUAL = [
    Row(f"ResidualWrapper {name}", error, tuple(says), call)
    for name, call, error, *says in [
        ("function 5", lambda _: tt.ResidualWrapper(gru(), 5), TypeError, "`residual_fn` must be callable", "got 5"),
        (
            "of two widths",
            lambda _: run(tt.ResidualWrapper(gru()), X),
            ValueError,
            "got (2, 4)",
            "(2, 5)",
            "`residual_fn(",
        ),
        ("of a pair", lambda _: run(tt.ResidualWrapper(pair()), X), ValueError, "ResidualWrapper", "expected (*, *)"),
        (
            "to nothing",
            lambda _: run(tt.ResidualWrapper(gru(), lambda *_: None), X),
            TypeError,
            "output",
            "got NoneType",
        ),
        (
            "to another width",
            lambda _: run(tt.ResidualWrapper(gru(), lambda i, o: torch.cat([i, o], 1)), X),
            ValueError,
            "Inconsistent shapes",
            "got (2, 9)",
            "(2, 5)",
        ),
        # Broadcasting would hide the mistake.
        ("of one column", lambda _: run(tt.ResidualWrapper(gru()), X[..., :1]), ValueError, "got (2, 1)", "(2, 5)"),
    ]
]

DEVICES = [
    Row(
        f"DeviceWrapper {device!r}",
        error,
        ("`device`", *says),
        lambda _, device=device: tt.DeviceWrapper(gru(), device),
    )
    for device, error, *says in [
        ("nope", ValueError, "got 'nope'", "'cuda:0'"),
        (-1, ValueError, "got -1"),
        (None, ValueError, "got None", "'cuda:0'"),
        (5.5, ValueError, "got 5.5"),
        (["cpu"], ValueError, "got ['cpu']"),
        # No machine has this many, and most that run the tests have none.
        ("cuda:99", ValueError, "cuda:99", "available"),
    ]
]

SIZES = [
    Row(
        f"{kind.__name__} {name} {value!r}",
        error,
        (f"`{name}`", *says),
        lambda _, k=kind, o={name: value}: k(gru(), **{**WRAPPERS[k], **o}),
    )
    for kind, name in [
        (tt.InputProjectionWrapper, "num_proj"),
        (tt.OutputProjectionWrapper, "output_size"),
        (tt.EmbeddingWrapper, "embedding_classes"),
        (tt.EmbeddingWrapper, "embedding_size"),
    ]
    for value, error, *says in [
        (0, ValueError, "got 0", "an int of at least 1"),
        (-1, ValueError, "got -1", "an int of at least 1"),
        (2.5, TypeError, "got 2.5", "an int of at least 1"),
        ("a", TypeError, "got 'a'"),
        (None, TypeError, "got None"),
        (True, TypeError, "got True"),
    ]
]

PROJECTIONS = [
    Row(f"{kind.__name__} {o}", error, tuple(says), lambda _, k=kind, o=o: k(gru(), **{**WRAPPERS[k], **o}))
    for kind, o, error, *says in [
        (tt.InputProjectionWrapper, {"activation": "nope"}, ValueError, "`activation` is unknown", "got 'nope'"),
        (tt.OutputProjectionWrapper, {"activation": "nope"}, ValueError, "`activation` is unknown", "got 'nope'"),
        (tt.InputProjectionWrapper, {"input_size": -1}, ValueError, "`input_size`", "got -1"),
        (tt.InputProjectionWrapper, {"reuse": True}, ValueError, "`reuse`", "got reuse=True"),
        (tt.OutputProjectionWrapper, {"reuse": True}, ValueError, "`reuse`", "got reuse=True"),
        (tt.EmbeddingWrapper, {"reuse": True}, ValueError, "`reuse`", "got reuse=True"),
        (tt.EmbeddingWrapper, {"initializer": 5}, TypeError, "`initializer`", "got 5", "callable"),
    ]
] + [
    Row(
        "OutputProjectionWrapper of a pair",
        TypeError,
        ("OutputProjectionWrapper", "output_size (5, 5)", "an int"),
        lambda _: tt.OutputProjectionWrapper(pair(), 3),
    ),
    Row(
        "InputProjectionWrapper over integers",
        ValueError,
        ("floating point inputs", "got torch.int64"),
        lambda cell: run(tt.InputProjectionWrapper(cell, 3), X.long()),
    ),
    Row(
        "InputProjectionWrapper over a nest",
        TypeError,
        ("must be one tensor", "got tuple"),
        lambda cell: run(tt.InputProjectionWrapper(cell, 3), (X, X)),
    ),
]


def embedded(cell: Any, ids: Any, **options: Any) -> Any:
    return run(tt.EmbeddingWrapper(cell, 7, 3), ids, **options)


EMBEDDINGS = [
    Row(f"EmbeddingWrapper over {name}", error, says, lambda cell, ids=ids: embedded(cell, ids))
    for name, ids, error, *says in [
        ("floats", IDS.float(), TypeError, "integer ids", "got torch.float32", "`ids.long()`"),
        ("bools", IDS > 0, TypeError, "integer ids", "got torch.bool"),
        ("a nest", (IDS, IDS), TypeError, "integer ids", "got tuple"),
        ("two ids a row", torch.cat([IDS, IDS], 2), ValueError, "one id", "got (2, 2)", "[B, 1]"),
        ("ids above the table", IDS + 7, tt.InvalidArgumentError, "outside of the table", "from 7 to 7", "0 to 6"),
        ("ids below the table", IDS - 1, tt.InvalidArgumentError, "outside of the table", "from -1 to -1", "0 to 6"),
    ]
] + [
    Row(
        "EmbeddingWrapper with an integer state",
        ValueError,
        ("floating point", "got torch.int64"),
        lambda cell: embedded(cell, IDS, dtype=I64),
        calls=1,
    )
]


@rows([*CELLS, *KEEP_PROBS, *DROPOUT, *DROPPED, *RESIDUAL, *DEVICES, *SIZES, *PROJECTIONS, *EMBEDDINGS])
def test_wrong_arguments(row: Row) -> None:
    check(row)


@pytest.mark.parametrize("value", [1, np.float32(0.5), torch.tensor(0.5)], ids=repr)
def test_keep_probabilities_that_are_welcome(value: Any) -> None:
    assert float(tt.DropoutWrapper(gru(), value).input_keep_prob) == float(value)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32], ids=str)
def test_ids_of_any_integer_kind(dtype: torch.dtype) -> None:
    cell = tt.EmbeddingWrapper(gru(), 7, 3)
    expected = run(cell, IDS)
    torch.testing.assert_close(run(cell, IDS.to(dtype)), expected, rtol=0, atol=0)


def test_an_output_of_one_dimension_can_be_projected() -> None:
    cell = Returning(lambda _, s: (s, s), output_size=torch.Size([H]))
    outputs, _ = run(tt.OutputProjectionWrapper(cell, 3), X)
    assert outputs.shape == (B, T, 3)


def test_a_state_is_made_on_the_wrappers_own_device() -> None:
    """Whatever is asked for, and whether there is such a device or not."""
    assert tt.DeviceWrapper(tt.GRUCell(2), "cpu").zero_state(2, torch.float32, "cuda:99").device.type == "cpu"
