"""Static shapes by probes: a kernel runs on `meta` tensors, twice, with different sizes for unknown dimensions.

A dimension that differs between both runs is unknown. Small integer tensors that derive from constants and `tf.shape`
are real tensors during a probe (`Tensor.host`), so that `tf.reshape(x, [tf.shape(x)[0], -1])` needs no rule of its own.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from throughtime.tf1.graph._dtypes import DType, float32, from_torch, string
from throughtime.tf1.graph._shapes import UNKNOWN, TensorShape, as_shape
from throughtime.tf1.graph._user_line import describe_line

if TYPE_CHECKING:
    from throughtime.tf1.graph._operation import HostValue, Operation, Tensor

Inferred = tuple[DType, TensorShape, "HostValue | None"]
ShapeRule = Callable[..., Sequence[Any]]
# Divisible by 1..8, so that splits and reshapes of an unknown dimension succeed; unlikely as a real size; so small
# that a tensor with five such dimensions has a size that fits 64 bits.
PROBE_SIZES = (840, 1680)
LARGEST_HOST_VALUE = 4096
SHAPE_FALLBACK = "shape_fallback"
"""The attribute with a rule for shapes that probes do not find."""
_RANKS_TO_TRY = (1, 2, 3, 4, 0, 5)
_MOST_TRIALS = 512

Choice = dict[tuple[int, int], int]
"""Sizes chosen for unknown dimensions, by input and axis, where the probe's own size does not fit the others."""


# What unknown integers are in the two probes of a kernel that asks for their values: results that differ are unknown.
_UNKNOWN_INTEGERS = ((1, 2), (0, 1))


class _ProbeError(Exception):
    """A kernel failed on probes; the cause says why."""


def infer(op: Operation, dtypes: Sequence[DType] | None) -> list[Inferred]:
    """Dtype, static shape and host value of every output of `op`."""
    if any(tensor.dtype == string for tensor in op.inputs):
        return _of_strings(op, dtypes)
    return _of_numbers(op, dtypes)


def _of_strings(op: Operation, dtypes: Sequence[DType] | None) -> list[Inferred]:
    """A kernel that only moves elements is probed with numbers in place of strings."""
    how = getattr(getattr(op.kernel, "func", op.kernel), "takes_strings", False)
    if not how:
        return _declared(op, dtypes)
    if how == "measured":
        return _of_numbers(op, dtypes)
    return [(string, shape, None) for _, shape, _ in _of_numbers(op, None)]


def _of_numbers(op: Operation, dtypes: Sequence[DType] | None) -> list[Inferred]:
    if any(tensor.shape.sizes is None and tensor.host is None for tensor in op.inputs):
        return _without_rank(op, dtypes)
    first = _first_that_works(op)
    if isinstance(first, Exception):
        return _not_probed(op, dtypes, first)
    choice, result = first
    if not _depends_on_probe_size(op.inputs):
        return [_merge(one, one) for one in result]
    try:
        second = _run(op, 1, choice)
    except _ProbeError:
        return _declared(op, dtypes or [from_torch(one.dtype) for one in result])
    merged = [_merge(*pair) for pair in zip(result, second, strict=True)]
    return _without_guesses(op, choice, result, merged)


def _without_guesses(
    op: Operation, choice: Choice, result: list[torch.Tensor], found: list[Inferred]
) -> list[Inferred]:
    """Sizes that follow from a dimension taken as 1, where another size does as well, are unknown."""
    if 1 not in choice.values():
        return found
    other = None
    for guess in (2, 3):
        with contextlib.suppress(_ProbeError):
            other = other or _run(op, 0, {place: guess if size == 1 else size for place, size in choice.items()})
    if other is None:
        return found
    agreed = [_merge(*pair) for pair in zip(result, other, strict=True)]
    return [
        (dtype, _both(shape, second), None) for (dtype, shape, _), (_, second, _) in zip(found, agreed, strict=True)
    ]


def _both(first: TensorShape, second: TensorShape) -> TensorShape:
    """The sizes that two shapes have in common."""
    if first.sizes is None or second.sizes is None or len(first.sizes) != len(second.sizes):
        return UNKNOWN
    return TensorShape([a if a == b else None for a, b in zip(first.sizes, second.sizes, strict=True)])


def _not_probed(op: Operation, dtypes: Sequence[DType] | None, error: Exception) -> list[Inferred]:
    """Outputs of a kernel that does not take probes: by its own rule, by trying values, or an error of the program."""
    rule = op.attrs.get(SHAPE_FALLBACK)
    if rule is not None and (_depends_on_probe_size(op.inputs) or _asks_for_values(error)):
        shapes = [as_shape(shape) for shape in rule()]
        kinds = dtypes or [op.inputs[0].dtype.base_dtype] * len(shapes)
        return [(dtype, shape, None) for dtype, shape in zip(kinds, shapes, strict=True)]
    if _asks_for_values(error):
        return _with_unknown_integers(op, dtypes)
    raise _shape_error(op, error) from error


def _asks_for_values(error: Exception) -> bool:
    """Whether a kernel failed because it needs the values of a probe."""
    text = str(error)
    return isinstance(error, RuntimeError | NotImplementedError) and ("meta tensor" in text or "no data" in text)


def _with_unknown_integers(op: Operation, dtypes: Sequence[DType] | None) -> list[Inferred]:
    """Run both probes with small integers in place of those that are not known; else the shape is unknown."""
    for integers in _UNKNOWN_INTEGERS:
        try:
            first, second = (_run(op, which, {}, integers=integers[which]) for which in (0, 1))
        except _ProbeError:
            continue
        return [(dtype, shape, None) for dtype, shape, _ in map(_merge, first, second)]
    return _declared(op, dtypes)


def _declared(op: Operation, dtypes: Sequence[DType] | None) -> list[Inferred]:
    first = op.inputs[0].dtype.base_dtype if op.inputs else float32
    return [(dtype, UNKNOWN, None) for dtype in dtypes or (first,)]


def _without_rank(op: Operation, dtypes: Sequence[DType] | None) -> list[Inferred]:
    """With an input of unknown rank: what all ranks that the kernel takes have in common."""
    if sum(tensor.shape.sizes is None and tensor.host is None for tensor in op.inputs) > 1:
        # All would be probed with the same rank.
        return _declared(op, dtypes or _dtypes_of_any_rank(op))
    by_rank = {rank: pair for rank in _RANKS_TO_TRY if (pair := _with_rank(op, rank)) is not None}
    found = list(by_rank.values())
    if not found:
        return _declared(op, dtypes)
    if set(by_rank) == {0}:
        # Probes of other ranks may have failed on their sizes alone.
        return _declared(op, dtypes or [from_torch(first.dtype) for first, _ in found[0]])
    return [_common(pairs, place, dtypes) for place, pairs in enumerate(zip(*found, strict=False))]


def _dtypes_of_any_rank(op: Operation) -> list[DType] | None:
    found = next((pairs for rank in _RANKS_TO_TRY if (pairs := _with_rank(op, rank)) is not None), None)
    return None if found is None else [from_torch(first.dtype) for first, _ in found]


def _with_rank(op: Operation, rank: int) -> list[tuple[torch.Tensor, torch.Tensor]] | None:
    """The results of both probes if inputs of unknown rank have this one; None if the kernel does not take it."""
    try:
        first, second = (_run(op, which, {}, rank, integers=which + 1) for which in (0, 1))
        return list(zip(first, second, strict=True))
    except _ProbeError:
        return None


def _common(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]], place: int, dtypes: Sequence[DType] | None) -> Inferred:
    """What is known of an output that has these values for inputs of several ranks."""
    results = [one for pair in pairs for one in pair]
    dtype = from_torch(results[0].dtype) if dtypes is None else dtypes[place]
    if any(one.ndim != results[0].ndim for one in results):
        return dtype, UNKNOWN, None
    sizes = [sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*(one.shape for one in results), strict=True)]
    return dtype, TensorShape(sizes), None


def _depends_on_probe_size(inputs: Sequence[Tensor]) -> bool:
    return any(
        not same_host_value(tensor.host) if tensor.host is not None else not tensor.shape.is_fully_defined()
        for tensor in inputs
    )


def same_host_value(host: HostValue | None) -> bool:
    """Whether a host value is a constant: the same for both probe sizes."""
    return host is not None and (
        host[0] is host[1] or (host[0].shape == host[1].shape and torch.equal(host[0], host[1]))
    )


def _first_that_works(op: Operation) -> tuple[Choice, list[torch.Tensor]] | Exception:
    """The first choice of sizes that the kernel takes, or the error of the first trial."""
    error: Exception | None = None
    for choice in itertools.islice(_choices(op.inputs), _MOST_TRIALS):
        try:
            return choice, _run(op, 0, choice)
        except _ProbeError as failed:
            error = error or failed.__cause__  # type: ignore[assignment]
    assert error is not None
    return error


def _choices(inputs: Sequence[Tensor]) -> Iterator[Choice]:
    """First the probe's size for every unknown dimension; then sizes that occur among the known ones, for a few."""
    yield {}
    shapes = [tensor.shape.sizes or () for tensor in inputs]
    unknown = [(place, axis) for place, sizes in enumerate(shapes) for axis, size in enumerate(sizes) if size is None]
    known = sorted({1, *(size for sizes in shapes for size in sizes if size is not None)}, reverse=True)
    subsets = [places for count in range(1, len(unknown) + 1) for places in itertools.combinations(unknown, count)]
    for places in subsets:
        yield from (dict.fromkeys(places, size) for size in known)
    for places in subsets:
        for sizes in itertools.product(known, repeat=len(places)):
            yield dict(zip(places, sizes, strict=True))


def _probe(
    tensor: Tensor, which: int, choice: Choice, place: int, rank: int | None, integer: int | None
) -> torch.Tensor:
    if tensor.host is not None:
        value: torch.Tensor = tensor.host[which]
        return value
    sizes = tensor.shape.sizes
    if sizes is None:
        sizes = (None,) * (rank or 0)
    unknown = PROBE_SIZES[which]
    filled = [choice.get((place, axis), unknown) if size is None else size for axis, size in enumerate(sizes)]
    if integer is not None and (tensor.dtype.is_integer or tensor.dtype.is_bool) and len(filled) < 2:
        return torch.full(filled, integer, dtype=tensor.dtype.torch_dtype, device="cpu")
    return torch.empty(filled, dtype=tensor.dtype.torch_dtype or torch.int64, device="meta")


def _run(
    op: Operation, which: int, choice: Choice, rank: int | None = None, integers: int | None = None
) -> list[torch.Tensor]:
    try:
        probes = [_probe(tensor, which, choice, place, rank, integers) for place, tensor in enumerate(op.inputs)]
        with torch.no_grad(), torch.device("meta"):
            try:
                result = op.kernel(*probes)
            except Exception:
                # A real value next to `meta` tensors may be an operand rather than a size.
                if all(probe.is_meta for probe in probes):
                    raise
                result = op.kernel(*[probe.to("meta") for probe in probes])
    except Exception as error:
        raise _ProbeError from error
    op.attrs["tuple"] = isinstance(result, tuple | list)
    return list(result) if op.attrs["tuple"] else [result]


def _merge(first: torch.Tensor, second: torch.Tensor) -> Inferred:
    dtype = from_torch(first.dtype)
    if first.ndim != second.ndim:
        return dtype, UNKNOWN, None
    sizes = [a if a == b else None for a, b in zip(first.shape, second.shape, strict=True)]
    real = not first.is_meta and not second.is_meta and first.numel() <= LARGEST_HOST_VALUE
    return dtype, TensorShape(sizes), (first, second) if real else None


def _shape_error(op: Operation, error: Exception) -> Exception:
    """TensorFlow's `ValueError` for shapes that do not fit, with the shapes and the user's line."""
    if isinstance(error, NotImplementedError | AttributeError | NameError | ImportError | AssertionError):
        return error
    shapes = ", ".join(str(tensor.shape) for tensor in op.inputs)
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    text = f"{op.type!r} (op {op.name!r}) cannot take inputs of shapes {shapes}: {reason}{describe_line(op.line)}"
    return TypeError(text) if isinstance(error, TypeError) else ValueError(text)
