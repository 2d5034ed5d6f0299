"""Reading checkpoints without a graph, and beginning variables with what a checkpoint has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from throughtime._errors import problem
from throughtime.interop import TFCheckpoint
from throughtime.tf1._errors import NotFoundError
from throughtime.tf1._namespace import exported
from throughtime.tf1.graph._dtypes import as_dtype
from throughtime.tf1.graph._graph import create_op
from throughtime.tf1.graph._variable_scope import variable_store
from throughtime.tf1.graph._variables import Variable, assign_op, global_variables
from throughtime.tf1.train._checkpoint_state import checkpoint_exists, latest_checkpoint, missing_checkpoint
from throughtime.tf1.train._saver import checked_value


@exported(
    "train.NewCheckpointReader", "pywrap_tensorflow.NewCheckpointReader", "python.pywrap_tensorflow.NewCheckpointReader"
)
class CheckpointReader:
    """The variables of a checkpoint, as numpy arrays."""

    def __init__(self, filepattern: Any) -> None:
        if not checkpoint_exists(filepattern):
            raise missing_checkpoint(filepattern)
        self._checkpoint = TFCheckpoint(filepattern)

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """Shapes by name."""
        return {name: list(shape) for name, shape in self._checkpoint.shapes.items()}

    def get_variable_to_dtype_map(self) -> dict[str, Any]:
        """Dtypes by name."""
        return {name: as_dtype(dtype) for name, dtype in self._checkpoint.dtypes.items()}

    def has_tensor(self, tensor_str: str) -> bool:
        """Whether there is a variable."""
        return tensor_str in self._checkpoint

    def get_tensor(self, tensor_str: str) -> Any:
        """A variable's value."""
        if tensor_str not in self._checkpoint:
            fix = "`get_variable_to_shape_map` has its names."
            what = f"Key {tensor_str} not found in checkpoint"
            message = problem(what, got=self._checkpoint.prefix, expected="one of its own", fix=fix)
            raise NotFoundError(None, None, message)
        value = self._checkpoint[tensor_str]
        array = value.numpy() if isinstance(value, torch.Tensor) else value
        return array[()] if array.ndim == 0 else array

    def debug_string(self) -> bytes:
        """A line for each variable."""
        return str(self._checkpoint).encode()


@exported("train.load_checkpoint", "contrib.framework.load_checkpoint")
def load_checkpoint(ckpt_dir_or_file: Any) -> CheckpointReader:
    """The reader of a checkpoint, or of the latest one of a folder."""
    return CheckpointReader(_prefix(ckpt_dir_or_file))


def _prefix(path: Any) -> Any:
    if path is None:
        raise ValueError("Couldn't find 'checkpoint' file or checkpoints in given directory None")
    found = path if checkpoint_exists(path) else latest_checkpoint(path)
    if found is None:
        raise ValueError(f"Couldn't find 'checkpoint' file or checkpoints in given directory {path}")
    return found


@exported("train.list_variables", "contrib.framework.list_variables")
def list_variables(ckpt_dir_or_file: Any) -> list[tuple[str, list[int]]]:
    """Names and shapes of the variables of a checkpoint."""
    return sorted(load_checkpoint(ckpt_dir_or_file).get_variable_to_shape_map().items())


@exported("train.load_variable", "contrib.framework.load_variable")
def load_variable(ckpt_dir_or_file: Any, name: str) -> Any:
    """A variable's value in a checkpoint."""
    return load_checkpoint(ckpt_dir_or_file).get_tensor(name.removesuffix(":0"))


@exported("train.init_from_checkpoint", "contrib.framework.init_from_checkpoint")
def init_from_checkpoint(ckpt_dir_or_file: Any, assignment_map: Mapping[str, Any] | Any) -> None:
    """Let variables begin with values of a checkpoint: their initialisers read it.

    The map is from names, or scopes that end with "/", of the checkpoint, to variables, their names, or scopes.
    """
    checkpoint = TFCheckpoint(_prefix(ckpt_dir_or_file))
    pairs = assignment_map.items() if isinstance(assignment_map, Mapping) else assignment_map
    for theirs, ours in pairs:
        for name, variable in _matches(checkpoint, theirs, ours):
            # A shape that does not fit is an error now, not when the session runs.
            checked_value(checkpoint, name, variable)
            _begin_with(variable, checkpoint, name)


def _matches(checkpoint: TFCheckpoint, theirs: str, ours: Any) -> Iterator[tuple[str, Variable]]:
    if isinstance(ours, Variable):
        yield theirs, ours
    elif isinstance(ours, list | tuple):
        for each in ours:
            yield theirs, each
    elif ours.endswith("/"):
        yield from _scope_matches(checkpoint, theirs, ours)
    else:
        known = variable_store().variables
        if ours not in known:
            raise ValueError(f"Variable {ours} is not found in the graph: expected a name given to tf.get_variable.")
        yield theirs, known[ours]


def _scope_matches(checkpoint: TFCheckpoint, theirs: str, ours: str) -> Iterator[tuple[str, Variable]]:
    if not theirs.endswith("/"):
        raise ValueError(
            f"Assignment map with scope only name {ours} should map to scope only {theirs}. "
            "Should be 'scope/': 'other_scope/'."
        )
    scope, other = ours.removeprefix("/"), theirs.removeprefix("/")
    for variable in global_variables():
        name = variable.op.name
        if name.startswith(scope):
            yield f"{other}{name[len(scope) :]}", variable


def _begin_with(variable: Variable, checkpoint: TFCheckpoint, name: str) -> None:
    dtype, shape = variable.dtype.base_dtype, variable.shape

    def read(state: Any) -> torch.Tensor:
        return checked_value(checkpoint, name, variable).to(state.device)

    with variable.graph.as_default(), variable.graph.name_scope(None):
        scope = f"{variable.op.name}/checkpoint_initializer"
        value = create_op("RestoreV2", read, name=scope, dtypes=[dtype], shapes=[shape], stateful=True).outputs[0]
        variable._initial_value = value
        variable._initializer = assign_op(variable.op, value, f"{variable.op.name}/assign_from_checkpoint").op
