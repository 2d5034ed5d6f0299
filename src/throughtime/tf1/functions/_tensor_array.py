"""`TensorArray`: a list of tensors that loops read and write, on the library's own `TensorArray`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from throughtime import _pytree
from throughtime.tf1._namespace import exported
from throughtime.tf1.graph._dtypes import DType, as_dtype, int32, variant
from throughtime.tf1.graph._graph import create_op
from throughtime.tf1.graph._operation import Tensor
from throughtime.tf1.graph._shapes import UNKNOWN, TensorShape, as_shape
from throughtime.tf1.ops._convert import convert_to_tensor
from throughtime.unroll._tensor_array import TensorArray as ArrayValue


@exported("TensorArray")
class TensorArray:
    """An array of tensors; each write gives a new array, `flow` is its value in the graph."""

    def __init__(
        self,
        dtype: Any,
        size: Any = None,
        dynamic_size: bool | None = None,
        clear_after_read: bool | None = None,
        tensor_array_name: str | None = None,
        handle: Any = None,
        flow: Tensor | None = None,
        infer_shape: bool = True,
        element_shape: Any = None,
        colocate_with_first_write_call: bool = True,
        name: str | None = None,
        *,
        shapes: list[TensorShape] | None = None,
    ):
        del handle, colocate_with_first_write_call, tensor_array_name
        self._dtype = as_dtype(dtype).base_dtype
        self._dynamic = bool(dynamic_size)
        self._infer_shape = infer_shape
        # Shared by all versions of an array: what a loop writes is known after it.
        self._shapes = shapes if shapes is not None else [as_shape(element_shape)]
        if flow is None:
            flow = self._new(0 if size is None else size, bool(clear_after_read is not False), name)
        self.flow: Tensor = flow

    def _new(self, size: Any, clear: bool, name: str | None) -> Tensor:
        kind, dynamic, infer = self._dtype.torch_dtype, self._dynamic, self._infer_shape
        if kind is None:
            raise TypeError(f"a TensorArray holds numbers, got {self._dtype.name}")

        def kernel(count: Any) -> Any:
            return ArrayValue(kind, size=int(count), dynamic_size=dynamic, clear_after_read=clear, infer_shape=infer)

        return self._flow("TensorArrayV3", kernel, [convert_to_tensor(size, int32, name="size")], name)

    @staticmethod
    def _flow(op_type: str, kernel: Callable[..., Any], inputs: Sequence[Tensor], name: str | None) -> Tensor:
        return create_op(op_type, kernel, inputs, name=name, dtypes=[variant], shapes=[UNKNOWN]).outputs[0]

    def _with(self, flow: Tensor, element_shape: TensorShape | None = None) -> TensorArray:
        """The array after a write of elements of this shape."""
        if self._infer_shape and element_shape is not None:
            known = self._shapes[0]
            self._shapes[0] = known.merge_with(element_shape) if known.is_compatible_with(element_shape) else UNKNOWN
        return TensorArray(
            self._dtype, dynamic_size=self._dynamic, flow=flow, infer_shape=self._infer_shape, shapes=self._shapes
        )

    @property
    def dtype(self) -> DType:
        """The dtype of the elements."""
        return self._dtype

    @property
    def handle(self) -> Tensor:
        """The array's value in the graph."""
        return self.flow

    @property
    def element_shape(self) -> TensorShape:
        """What is known of the shape of an element."""
        return self._shapes[0]

    @property
    def dynamic_size(self) -> bool:
        """Whether writing past the end makes the array longer."""
        return self._dynamic

    def identity(self) -> TensorArray:
        """The same array."""
        return self

    def grad(self, source: str, flow: Any = None, name: str | None = None) -> TensorArray:
        """Not supported: gradients are torch's."""
        raise NotImplementedError("TensorArray.grad is not supported: use tf.gradients")

    def size(self, name: str | None = None) -> Tensor:
        """The number of elements."""
        kernel = lambda array: torch.tensor(array.size(), dtype=torch.int32)  # noqa: E731
        return create_op("TensorArraySizeV3", kernel, [self.flow], name=name, dtypes=[int32], shapes=[()]).outputs[0]

    def write(self, index: Any, value: Any, name: str | None = None) -> TensorArray:
        """The array with `value` at `index`."""
        tensor = convert_to_tensor(value, self._dtype, name="value")
        self._check_element(tensor)
        place = convert_to_tensor(index, name="index")
        kernel = lambda array, at, what: array.write(int(at), what)  # noqa: E731
        flow = self._flow("TensorArrayWriteV3", kernel, [self.flow, place, tensor], name)
        return self._with(flow, tensor.shape)

    def _check_element(self, tensor: Tensor) -> None:
        if self._infer_shape and not self._shapes[0].is_compatible_with(tensor.shape):
            raise ValueError(
                f"Inconsistent shapes: saw {tensor.shape} but expected {self._shapes[0]} (and infer_shape=True)"
            )

    def read(self, index: Any, name: str | None = None) -> Tensor:
        """The element at `index`."""
        kernel = lambda array, at: array.read(int(at))  # noqa: E731
        return self._value("TensorArrayReadV3", kernel, [convert_to_tensor(index, name="index")], self._shapes[0], name)

    def _value(
        self, op_type: str, kernel: Callable[..., Any], more: Sequence[Tensor], shape: TensorShape, name: str | None
    ) -> Tensor:
        return create_op(op_type, kernel, [self.flow, *more], name=name, dtypes=[self._dtype], shapes=[shape]).outputs[
            0
        ]

    def stack(self, name: str | None = None) -> Tensor:
        """All elements along a new first axis."""
        shape = TensorShape([None]).concatenate(self._shapes[0])
        return self._value("TensorArrayGatherV3", lambda array: array.stack(), [], shape, name or "TensorArrayStack")

    pack = stack

    def gather(self, indices: Any, name: str | None = None) -> Tensor:
        """Some elements along a new first axis."""
        kernel = lambda array, at: array.gather(at.tolist())  # noqa: E731
        shape = TensorShape([None]).concatenate(self._shapes[0])
        return self._value("TensorArrayGatherV3", kernel, [convert_to_tensor(indices, name="indices")], shape, name)

    def concat(self, name: str | None = None) -> Tensor:
        """All elements along their first axis."""
        sizes = self._shapes[0].sizes
        shape = UNKNOWN if sizes is None else TensorShape([None, *sizes[1:]])
        return self._value("TensorArrayConcatV3", lambda array: array.concat(), [], shape, name)

    def unstack(self, value: Any, name: str | None = None) -> TensorArray:
        """An array of the parts of `value` along its first axis."""
        tensor = convert_to_tensor(value, self._dtype, name="value")
        flow = self._flow("TensorArrayScatterV3", lambda array, what: array.unstack(what), [self.flow, tensor], name)
        return self._with(flow, tensor.shape[1:])

    unpack = unstack

    def scatter(self, indices: Any, value: Any, name: str | None = None) -> TensorArray:
        """The array with the parts of `value` at `indices`."""
        tensor = convert_to_tensor(value, self._dtype, name="value")
        places = convert_to_tensor(indices, name="indices")
        kernel = lambda array, at, what: array.scatter(at.tolist(), what)  # noqa: E731
        flow = self._flow("TensorArrayScatterV3", kernel, [self.flow, places, tensor], name)
        return self._with(flow, tensor.shape[1:])

    def split(self, value: Any, lengths: Any, name: str | None = None) -> TensorArray:
        """An array of parts of `value`, of these lengths along its first axis."""
        tensor = convert_to_tensor(value, self._dtype, name="value")
        sizes = convert_to_tensor(lengths, name="lengths")
        kernel = lambda array, what, counts: array.split(what, counts.tolist())  # noqa: E731
        return self._with(self._flow("TensorArraySplitV3", kernel, [self.flow, tensor, sizes], name))

    def close(self, name: str | None = None) -> None:
        """Accepted: memory is freed when nothing refers to it."""


def as_loop_leaves(variables: Any, dtypes: Sequence[DType] | None = None) -> list[Tensor]:
    """The tensors of a nest of loop variables; of an array its flow."""
    leaves = _pytree.flatten(variables)
    wanted: Sequence[DType | None] = [None] * len(leaves) if dtypes is None or len(dtypes) != len(leaves) else dtypes
    return [_leaf(leaf, dtype) for leaf, dtype in zip(leaves, wanted, strict=True)]


def _leaf(leaf: Any, dtype: DType | None) -> Tensor:
    if isinstance(leaf, TensorArray):
        return leaf.flow
    is_number = not isinstance(leaf, Tensor) and not hasattr(leaf, "_as_tensor")
    return convert_to_tensor(leaf, dtype if is_number else None)


def from_loop_leaves(template: Any, leaves: Sequence[Tensor]) -> Any:
    """A nest of loop variables of these tensors."""
    arrays = [leaf if isinstance(leaf, TensorArray) else None for leaf in _pytree.flatten(template)]
    items: list[Any] = [
        tensor if array is None else array._with(tensor) for array, tensor in zip(arrays, leaves, strict=True)
    ]
    return _pytree.pack_as(template, items)
