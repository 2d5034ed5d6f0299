"""`Saver`: variables of a session into TensorFlow's checkpoints and back."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from throughtime._atomic_files import whole
from throughtime._errors import problem
from throughtime.interop import TFCheckpoint
from throughtime.interop.checkpoints._save import write_bundle
from throughtime.tf1._errors import InvalidArgumentError, NotFoundError
from throughtime.tf1._namespace import export, exported
from throughtime.tf1.app import _logging as logging
from throughtime.tf1.graph._collections import GraphKeys
from throughtime.tf1.graph._graph import get_default_graph
from throughtime.tf1.graph._variables import Variable, global_variables, read_variable
from throughtime.tf1.protos import SaverDef
from throughtime.tf1.train._checkpoint_state import (
    checkpoint_exists,
    remove_checkpoint,
    update_checkpoint_state,
)
from throughtime.tf1.train._meta_graph import load_meta_graph, meta_graph, write_meta_graph


@exported("train.Saver")
class Saver:
    """Saves and restores variables in TensorFlow's own format.

    >>> import tempfile, throughtime.tf1 as tf
    >>> with tf.Graph().as_default(), tf.Session() as session:
    ...     weight = tf.Variable([1.0, 2.0], name="weight")
    ...     session.run(weight.initializer)
    ...     saver = tf.train.Saver()
    ...     path = saver.save(session, tempfile.mkdtemp() + "/model.ckpt", global_step=7)
    ...     saver.restore(session, path)
    >>> path.rpartition("/")[2]
    'model.ckpt-7'
    """

    V1, V2 = SaverDef.V1, SaverDef.V2

    def __init__(
        self,
        var_list: Any = None,
        reshape: bool = False,
        sharded: bool = False,
        max_to_keep: int | None = 5,
        keep_checkpoint_every_n_hours: float = 10000.0,
        name: str | None = None,
        restore_sequentially: bool = False,
        saver_def: Any = None,
        builder: Any = None,
        defer_build: bool = False,
        allow_empty: bool = False,
        write_version: int = SaverDef.V2,
        pad_step_number: bool = False,
        save_relative_paths: bool = False,
        filename: str | None = None,
    ) -> None:
        del restore_sequentially, builder, write_version, filename, name, saver_def
        self._var_list, self._reshape, self._allow_empty = var_list, reshape, allow_empty
        self._sharded, self._pad, self._relative = sharded, pad_step_number, save_relative_paths
        self._max_to_keep = max_to_keep
        self._hours = keep_checkpoint_every_n_hours
        self._next_time = time.time() + keep_checkpoint_every_n_hours * 3600
        # Prefixes and times of the checkpoints that this saver may remove.
        self._saved: list[tuple[str, float]] = []
        self._variables: dict[str, Variable] | None = None
        self._last_graph: tuple[Any, int, bytes] = (None, 0, b"")
        if not defer_build:
            self.build()

    def build(self) -> None:
        """Fix which variables are saved."""
        if self._variables is None:
            self._variables = named_variables(self._var_list)
            if not self._variables and not self._allow_empty:
                fix = "Make variables before the saver, or pass `var_list`."
                raise ValueError(problem("No variables to save", got="none", expected="at least one", fix=fix))

    def as_saver_def(self) -> SaverDef:
        """The settings."""
        return SaverDef(
            max_to_keep=self._max_to_keep or 0,
            sharded=self._sharded,
            keep_checkpoint_every_n_hours=self._hours,
            version=SaverDef.V2,
        )

    saver_def = property(as_saver_def)

    # Saving

    def save(
        self,
        sess: Any,
        save_path: Any,
        global_step: Any = None,
        latest_filename: str | None = None,
        meta_graph_suffix: str = "meta",
        write_meta_graph: bool = True,
        write_state: bool = True,
        strip_default_attrs: bool = False,
        save_debug_info: bool = False,
    ) -> str:
        """Write a checkpoint; its prefix is `save_path`, with `-step` behind it if `global_step` is given."""
        del strip_default_attrs, save_debug_info
        self.build()
        session = tf_session(sess)
        path: str = os.fspath(save_path)
        if not Path(path).name:
            fix = "Add the name that the files begin with, such as 'model.ckpt'."
            raise ValueError(problem("`save_path` is a folder", got=repr(path), expected="a prefix", fix=fix))
        if global_step is not None:
            number = _step_number(session, global_step)
            path = f"{path}-{number:08d}" if self._pad else f"{path}-{number}"
        folder = os.path.dirname(path)  # noqa: PTH120
        if folder and not Path(folder).is_dir():
            fix = "Make it first, as with tf.gfile.MakeDirs."
            message = problem(f"Parent directory of {path} doesn't exist", got=folder, expected="a folder", fix=fix)
            raise ValueError(f"{message} Can't save.")
        write_bundle(Path(path), self._values(session))
        if write_state:
            self._note(path, folder, latest_filename, meta_graph_suffix)
        if write_meta_graph:
            self._write_meta_graph(f"{path}.{meta_graph_suffix}", session.graph)
        return path

    def _write_meta_graph(self, path: str, graph: Any) -> None:
        """Write the graph; one that has not changed is copied from the last time."""
        if self._last_graph[:2] != (graph, graph.version):
            found = meta_graph(graph, self.as_saver_def(), list(self._named()))
            self._last_graph = (graph, graph.version, found.SerializeToString())
        with whole(Path(path)) as new:
            new.write_bytes(self._last_graph[2])

    def _values(self, session: Any) -> dict[str, torch.Tensor]:
        found = {name: read_variable(session.state, each.op) for name, each in (self._variables or {}).items()}
        texts = [name for name, value in found.items() if not isinstance(value, torch.Tensor)]
        if texts:
            what, fix = "variables of strings cannot be saved", "Leave them out of `var_list`."
            raise InvalidArgumentError(None, None, problem(what, got=texts, expected="numbers", fix=fix))
        return found

    def _note(self, path: str, folder: str, latest_filename: str | None, suffix: str) -> None:
        """Remove checkpoints that are too many, and write the file `checkpoint`."""
        self._saved = [pair for pair in self._saved if pair[0] != path] + [(path, time.time())]
        if self._max_to_keep and len(self._saved) > self._max_to_keep:
            oldest, written = self._saved.pop(0)
            if written > self._next_time:
                self._next_time += self._hours * 3600
            else:
                remove_checkpoint(oldest, meta_graph_suffix=suffix)
        paths = [pair[0] for pair in self._saved]
        if self._relative:
            paths = [os.path.relpath(each, folder or ".") for each in paths]
        update_checkpoint_state(
            "" if self._relative else folder,
            paths[-1],
            paths,
            os.path.join(folder, latest_filename or "checkpoint") if self._relative else latest_filename,  # noqa: PTH118
        )

    @property
    def last_checkpoints(self) -> list[str]:
        """The checkpoints that are not removed yet, oldest first."""
        return [path for path, _ in self._saved]

    def set_last_checkpoints(self, last_checkpoints: Sequence[str]) -> None:
        """Take over checkpoints to be removed one day."""
        self._saved = [(path, time.time()) for path in last_checkpoints]

    def set_last_checkpoints_with_time(self, last_checkpoints_with_time: Sequence[tuple[str, float]]) -> None:
        """The same, with the times at which they were written."""
        self._saved = [(path, written) for path, written in last_checkpoints_with_time]

    def recover_last_checkpoints(self, checkpoint_paths: Iterable[str]) -> None:
        """Take over those checkpoints that are still there."""
        self.set_last_checkpoints([path for path in checkpoint_paths if checkpoint_exists(path)])

    def export_meta_graph(self, filename: Any = None, *_: Any, **__: Any) -> Any:
        """Write the graph alone."""
        return write_meta_graph(filename, get_default_graph(), self.as_saver_def(), list(self._named()))

    # Restoring

    def restore(self, sess: Any, save_path: Any) -> None:
        """Set variables to what a checkpoint has for their names."""
        self.build()
        if save_path is None:
            raise ValueError("Can't load save_path when it is None.")
        if not checkpoint_exists(save_path):
            fix = "Pass what `save` returned, or tf.train.latest_checkpoint(folder)."
            message = f"The passed save_path is not a valid checkpoint: {save_path}"
            raise ValueError(problem(message, got=save_path, expected="the prefix of a checkpoint", fix=fix))
        logging.info("Restoring parameters from %s", save_path)
        session, checkpoint = tf_session(sess), TFCheckpoint(save_path)
        values = {name: checked_value(checkpoint, name, each, self._reshape) for name, each in self._named().items()}
        for name, each in self._named().items():
            session.state.values[each.op] = values[name].to(session.state.device)

    def _named(self) -> dict[str, Variable]:
        return self._variables or {}


export("Saver", Saver)
export("python.training.saver.Saver", Saver)


@exported("train.import_meta_graph", "python.training.saver.import_meta_graph")
def import_meta_graph(
    meta_graph_or_file: Any, clear_devices: bool = False, import_scope: str | None = None, **options: Any
) -> Saver:
    """Bring back a graph that a `Saver` wrote, into the default graph; its saver restores the variables."""
    del clear_devices
    if import_scope:
        fix = "Leave it out."
        what = "a graph cannot be imported into a scope"
        raise NotImplementedError(problem(what, got=f"import_scope={import_scope!r}", expected="None", fix=fix))
    names = load_meta_graph(meta_graph_or_file)
    known = {each.op.name: each for each in global_variables()}
    return Saver({name: known[name] for name in names if name in known}, allow_empty=True, **options)


def named_variables(var_list: Any) -> dict[str, Variable]:
    """Variables by the names that they have in a checkpoint."""
    if isinstance(var_list, Mapping):
        return dict(var_list)
    if var_list is None:
        saveable = get_default_graph().get_collection(GraphKeys.SAVEABLE_OBJECTS)
        var_list = [*global_variables(), *(each for each in saveable if isinstance(each, Variable))]
    found: dict[str, Variable] = {}
    for each in [var_list] if isinstance(var_list, Variable) else var_list:
        if not isinstance(each, Variable):
            raise TypeError(f"Variable to save is not a Variable: {each}")
        if found.get(each.op.name, each) is not each:
            raise ValueError(f"At least two variables have the same name: {each.op.name}")
        found[each.op.name] = each
    return found


def checked_value(checkpoint: TFCheckpoint, name: str, variable: Variable, reshape: bool = False) -> torch.Tensor:
    """A variable's value of a checkpoint, of the shape and dtype that the variable has."""
    if name not in checkpoint:
        near = ", ".join(_nearest(name, checkpoint))
        fix = f"The nearest: {near}." if near else "tf.train.list_variables shows its names."
        message = f"Key {name} not found in checkpoint"
        raise NotFoundError(None, variable.op, problem(message, got=checkpoint.prefix, expected=name, fix=fix))
    value = checkpoint[name]
    if not isinstance(value, torch.Tensor):
        raise InvalidArgumentError(None, variable.op, f"{name} is a string in {checkpoint.prefix}: expected numbers.")
    wanted, dtype = variable.shape, variable.dtype.base_dtype
    if reshape and wanted.is_fully_defined():
        value = value.reshape([size or 0 for size in wanted.as_list()])
    if not wanted.is_compatible_with(list(value.shape)):
        message = "Assign requires shapes of both tensors to match"
        fix = "Build the model with the sizes of the checkpoint, or leave the variable out of `var_list`."
        raise InvalidArgumentError(
            None,
            variable.op,
            problem(f"{message}. {name}", got=f"shape {list(value.shape)}", expected=f"shape {wanted}", fix=fix),
        )
    if value.dtype != dtype.torch_dtype:
        fix = f"Make the variable with dtype {value.dtype}."
        message = problem(f"dtype of {name}", got=value.dtype, expected=dtype.name, fix=fix)
        raise InvalidArgumentError(None, variable.op, message)
    return value


def _nearest(name: str, checkpoint: TFCheckpoint) -> list[str]:
    last = name.rpartition("/")[2]
    return [other for other in checkpoint if other.rpartition("/")[2] == last][:3]


def _step_number(session: Any, global_step: Any) -> int:
    """A step that is a number, a variable or a tensor."""
    if isinstance(global_step, int | np.integer):
        return int(global_step)
    if isinstance(global_step, Variable):
        return int(read_variable(session.state, global_step.op))
    if isinstance(global_step, np.ndarray | np.generic | float):
        return int(global_step)
    return int(session.run(global_step))


def tf_session(session: Any) -> Any:
    """The session behind a wrapper such as `MonitoredSession`."""
    while not hasattr(session, "state"):
        inner = getattr(session, "_tf_sess", None)
        if inner is None:
            fix = "Pass a tf.Session."
            what = "'sess' must be a Session"
            raise TypeError(f"{problem(what, got=type(session).__name__, expected='a tf.Session', fix=fix)}")
        session = inner() if callable(inner) else inner
    if getattr(session, "_closed", False):
        raise RuntimeError("Attempted to use a closed Session.")
    return session
