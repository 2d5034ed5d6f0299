"""From parameters to a checkpoint that TensorFlow reads: version 2, in one file of numbers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from throughtime._atomic_files import whole
from throughtime._errors import problem, type_name
from throughtime.interop.checkpoints._crc32c import crc32c, masked
from throughtime.interop.checkpoints._dtypes import DType, by_torch
from throughtime.interop.checkpoints._parameter_names import check_built, targets
from throughtime.interop.checkpoints._protobuf import field, fixed
from throughtime.interop.checkpoints._resolve_path import STATE, read_state
from throughtime.interop.checkpoints._sstable_writer import table_of
from throughtime.interop.checkpoints._v2_tensor_bundle import VERSION

_SHARD = "data-00000-of-00001"


def save_tf_checkpoint(target: Any, prefix: Any, scope: str | None = None) -> str:
    """Save a cell's or a model's parameters as a checkpoint that `tf.train.Saver` restores and TensorFlow reads.

    It is written in version 2 of the format: `prefix.index` and `prefix.data-00000-of-00001`, each there whole or not
    at all; and the folder's `checkpoint` says that it is the latest.

    Args:
        target: As for `load_tf_checkpoint`: a cell, a `tt.RNN`, or a dict of the parts of a model by their scopes.
            Tensors are saved by their very names: `{"rnn": cell, "global_step": torch.tensor(1000)}`.
        prefix: The name that the files will have in common, as `runs/model.ckpt-1000`.
        scope: The scope of the unroll; None takes that of the cell's first unroll, or "rnn".

    Returns:
        The prefix, as `tf.train.Saver.save` does.

    >>> import tempfile, throughtime as tt
    >>> path = tt.interop.save_tf_checkpoint(tt.BasicRNNCell(2, input_size=3), f"{tempfile.mkdtemp()}/model.ckpt")
    >>> print(tt.interop.TFCheckpoint(path))
    rnn/basic_rnn_cell/bias    float32  (2,)    8
    rnn/basic_rnn_cell/kernel  float32  (5, 2)  40
    """
    found = targets(target, scope)
    check_built(found)
    place = _check_prefix(prefix)
    write_bundle(place, {name: each.in_tensorflow() for name, each in found.places.items()})
    _note_latest(place)
    return str(prefix)


def write_bundle(place: Path, named: Mapping[str, Tensor]) -> None:
    """Write tensors by name in version 2 of the format; the folder's `checkpoint` is left as it is."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in named.items()}
    dtypes = {name: _check_dtype(name, tensor) for name, tensor in tensors.items()}
    place.parent.mkdir(parents=True, exist_ok=True)
    with whole(place.with_name(f"{place.name}.index")) as index:
        with whole(place.with_name(f"{place.name}.{_SHARD}")) as data:
            entries = _write_numbers(data, tensors, dtypes)
        index.write_bytes(table_of(entries))


def _check_prefix(prefix: Any) -> Path:
    if not isinstance(prefix, str | os.PathLike) or not Path(prefix).name:
        fix = "Pass a path such as 'runs/model.ckpt-1000'."
        expected = "the name that the files will have in common"
        raise TypeError(problem("`prefix` names no checkpoint", got=type_name(prefix), expected=expected, fix=fix))
    return Path(prefix)


def _check_dtype(name: str, tensor: Tensor) -> DType:
    dtype = by_torch(tensor.dtype)
    if dtype is None:
        fix = "Convert it first."
        raise TypeError(
            problem(f"{name!r} cannot be saved", got=tensor.dtype, expected="a dtype that TensorFlow has", fix=fix)
        )
    return dtype


def _write_numbers(path: Path, tensors: Mapping[str, Tensor], dtypes: Mapping[str, DType]) -> list[tuple[bytes, bytes]]:
    """Write all numbers, one variable after the other; return the entries of the index, in its order."""
    header = field(1, 1) + field(3, field(1, VERSION))
    entries = [(b"", header)]
    offset = 0
    with path.open("wb") as file:
        for name, tensor in sorted(tensors.items(), key=lambda item: item[0].encode()):
            data = tensor.reshape(-1).view(torch.uint8).numpy().data
            file.write(data)
            entry = field(1, dtypes[name].number) + field(2, _shape(tensor))
            entry += field(4, offset) + field(5, len(data)) + fixed(6, masked(crc32c(data)))
            entries.append((name.encode(), entry))
            offset += len(data)
    return entries


def _shape(tensor: Tensor) -> bytes:
    return b"".join(field(2, field(1, side)) for side in tensor.shape)


def _note_latest(place: Path) -> None:
    """Note the checkpoint as the latest of its folder, behind those that were there."""
    state = place.with_name(STATE)
    earlier = [path for every, path in read_state(state) if every and path != place.name]
    lines = [f'model_checkpoint_path: "{_escaped(place.name)}"']
    lines += [f'all_model_checkpoint_paths: "{_escaped(path)}"' for path in [*earlier, place.name]]
    with whole(state) as new:
        new.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _escaped(path: str) -> str:
    return path.replace("\\", "\\\\").replace('"', '\\"')
