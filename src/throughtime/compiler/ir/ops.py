"""The operation table: what the compiler knows about each ATen operation. Every pass and backend looks it up here.

A line groups operations that share all properties. The rules themselves are functions elsewhere, and the table has
their names:

* `rows`, the rule that proves the rows of a batch independent: `passes/row_rules.py`;
* `lowering`, the rule that translates a node into the loop program: `lowering/rules.py` and `lowering/layout_rules.py`;
  formulas (`lowering="composite"`) are in `lowering/decompositions.py`.

An operation without `rows` is refused, so its cell runs on the reference. One without `lowering` runs on the `aten`
backend. Operations that torch tags as pointwise need no line. `ir/costs.py` counts FLOPs by kind.

"How to add an operation" in CONTRIBUTING.md has the steps.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cache

import torch

from throughtime._torch_internals import OpOverload
from throughtime.compiler.ir.loop_ir import BINARY, UNARY


class Kind(enum.Enum):
    """What an operation does, which decides what it costs."""

    POINTWISE = "pointwise"  # each element from the elements at its own place
    VIEW = "view"  # the same memory in another shape or order
    COPY = "copy"  # moves elements and computes nothing
    FILL = "fill"  # a constant, from a shape alone
    RANDOM = "random"
    REDUCTION = "reduction"
    NORMALIZATION = "normalization"  # reductions, then pointwise
    SCAN = "scan"  # along one dimension: cumulative sums, sorting
    PRODUCT = "product"
    CONVOLUTION = "convolution"  # convolutions and pooling
    INDEX = "index"  # reads or writes at places that are data
    UNKNOWN = "unknown"


class RecomputePolicy(enum.IntEnum):
    """When to run an operation again rather than to save its result."""

    ALWAYS = 0
    """It costs less than a load: the backward loop recomputes it."""
    OFFLOADED = 1
    """No matrix product: recomputed for a whole chunk of steps when saved values are offloaded."""
    NEVER = 2


class Linear(enum.Enum):
    """In which arguments an operation is linear. A sum over rows may only go through linear operations."""

    ONE = "any one argument"
    ALL = "all arguments together"
    FIRST = "the first argument"


_NO_PRODUCT = frozenset({Kind.POINTWISE, Kind.VIEW, Kind.COPY, Kind.FILL, Kind.REDUCTION, Kind.NORMALIZATION})


@dataclass(frozen=True)
class Operation:
    """A line of the table."""

    kind: Kind
    rows: str | None = None
    lowering: str | None = None
    linear: Linear | None = None
    cheap: bool = False
    """Cheaper to recompute than to load."""
    keeps_order: bool = False
    """A view or copy with the elements in their order: the identity if the shape stays."""
    may_copy: bool = False
    """A view that torch copies if strides do not allow it."""
    makes_rows: bool = False
    """May give rows to a value without rows: all are equal, or drawn independently."""
    narrows: bool = False
    """As fast in every step of a loop as once for all steps, so it may stay in the loop."""

    @property
    def recompute(self) -> RecomputePolicy:
        """Whether to recompute its result rather than to save it."""
        if self.cheap:
            return RecomputePolicy.ALWAYS
        return RecomputePolicy.OFFLOADED if self.kind in _NO_PRODUCT else RecomputePolicy.NEVER

    @property
    def is_pointwise(self) -> bool:
        """Whether every element of the result comes from the elements at its own place, copies and casts included."""
        return self.rows == "pointwise" and self.kind is not Kind.RANDOM

    @property
    def is_view(self) -> bool:
        """Whether a kernel reads its result out of its argument."""
        return self.kind is Kind.VIEW

    @property
    def launches_nothing(self) -> bool:
        """Whether torch runs it without a kernel."""
        return self.kind is Kind.VIEW and not self.may_copy


UNKNOWN = Operation(Kind.UNKNOWN)
POINTWISE = Operation(Kind.POINTWISE, rows="pointwise")
"""Operations that torch tags as pointwise and that have no line."""

OPERATIONS: dict[str, Operation] = {}
"""By name without overload; operations outside of ATen as `namespace::name`."""


def _add(names: str, operation: Operation) -> None:
    OPERATIONS.update(dict.fromkeys(names.split(), operation))


def _pointwise(names: str, lowering: str | None, *, linear: Linear | None = None, cheap: bool = False) -> None:
    _add(names, Operation(Kind.POINTWISE, "pointwise", lowering, linear, cheap=cheap))


def _view(names: str, rows: str, lowering: str | None, *, cheap: bool = False, in_order: bool = True) -> None:
    operation = Operation(Kind.VIEW, rows, lowering, Linear.ONE, cheap=cheap, keeps_order=in_order, narrows=True)
    _add(names, operation)


def _along(names: str, kind: Kind, rows: str = "along_dim", lowering: str | None = None) -> None:
    _add(names, Operation(kind, rows, lowering))


# Pointwise. The loop program has its own operation for each of `UNARY` and `BINARY`, by the same name.
_pointwise(" ".join(UNARY | BINARY), "same_name")
_pointwise("add sub", "scaled_sum", linear=Linear.ALL, cheap=True)
_pointwise("mul neg", "same_name", linear=Linear.ONE, cheap=True)
_pointwise("relu eq ne lt le gt ge logical_not logical_and logical_or", "same_name", cheap=True)
_pointwise("div", "same_name", linear=Linear.FIRST)
_pointwise("pow", "power")
_pointwise("where", "where", cheap=True)
_pointwise("square clamp clamp_min clamp_max hardtanh silu gelu softplus elu leaky_relu hardsigmoid", "composite")
_pointwise("hardswish mish", "composite")
_pointwise("sigmoid_backward tanh_backward threshold_backward hardtanh_backward silu_backward", "composite")
_pointwise("gelu_backward softplus_backward elu_backward leaky_relu_backward hardsigmoid_backward", "composite")
_pointwise("hardswish_backward mish_backward", "composite")
_pointwise("celu selu", None)

# Views. `select`, `expand` and transposes are saved rather than recomputed: kernels would read them with strides.
_view("view _unsafe_view", "reshape", "view", cheap=True)
_view("_reshape_alias", "reshape", None)
_view("unsqueeze squeeze", "permute", "view", cheap=True)
_view("slice", "slice", "slice", cheap=True)
_view("select", "along_dim", "select")
_view("t permute transpose", "permute", "permute", in_order=False)
_add(
    "reshape",
    Operation(Kind.VIEW, "reshape", "view", Linear.ONE, cheap=True, keeps_order=True, may_copy=True, narrows=True),
)
_add("expand", Operation(Kind.VIEW, "repeat", "expand", Linear.ONE, keeps_order=True, makes_rows=True, narrows=True))
_add("split split_with_sizes unbind", Operation(Kind.VIEW))
_add("diagonal", Operation(Kind.VIEW, linear=Linear.ONE))
_add("unfold", Operation(Kind.VIEW, "along_dimension"))

# Copies.
_add("clone", Operation(Kind.COPY, "pointwise", "cast", Linear.ONE, keeps_order=True, narrows=True))
_add("_to_copy", Operation(Kind.COPY, "pointwise", "cast", Linear.ONE, keeps_order=True))
_add("lift_fresh", Operation(Kind.COPY, keeps_order=True))
_add("cat", Operation(Kind.COPY, "cat", "cat", Linear.ALL))
_add("stack", Operation(Kind.COPY, "stack", "stack", Linear.ALL))
_add("slice_scatter select_scatter", Operation(Kind.COPY, "scatter_into", "scatter", Linear.ALL))
_add("flip", Operation(Kind.COPY, "along_dims", "flip", Linear.ONE))
_add("roll", Operation(Kind.COPY, "along_dims", "roll", Linear.ONE))
_add("repeat", Operation(Kind.COPY, "repeat", "repeat", Linear.ONE, makes_rows=True))
_add("tril triu", Operation(Kind.COPY, "planes", None, Linear.ONE))
_add("constant_pad_nd", Operation(Kind.COPY, "pad", "pad"))

# From a shape alone.
_add("zeros ones full", Operation(Kind.FILL, "free", "fill", makes_rows=True))
_add("empty", Operation(Kind.FILL, "free", makes_rows=True))
_add("rand randn", Operation(Kind.RANDOM, "free", makes_rows=True))
_add("bernoulli uniform normal_functional exponential cauchy geometric log_normal", Operation(Kind.RANDOM, "pointwise"))

# Reductions.
_add("sum", Operation(Kind.REDUCTION, "reduce", "reduction", Linear.ONE, narrows=True))
_add("mean", Operation(Kind.REDUCTION, "reduce", "mean", Linear.ONE, narrows=True))
_add("amax amin", Operation(Kind.REDUCTION, "reduce", "reduction", narrows=True))
_add("prod", Operation(Kind.REDUCTION, "reduce", "reduction"))
_add("any all", Operation(Kind.REDUCTION, "reduce", "truth"))
_add("var std", Operation(Kind.REDUCTION, "reduce", "var"))
_add("logsumexp", Operation(Kind.REDUCTION, "reduce", "logsumexp"))
_add("linalg_vector_norm", Operation(Kind.REDUCTION, "reduce", "norm"))
_add("var_mean max min", Operation(Kind.REDUCTION, "reduce"))
_along("argmax argmin", Kind.REDUCTION)

# Normalizations.
_along("_softmax _safe_softmax _log_softmax", Kind.NORMALIZATION, lowering="composite_along_dim")
_add(
    "_softmax_backward_data _log_softmax_backward_data",
    Operation(Kind.NORMALIZATION, "along_dim", "composite_along_dim", Linear.FIRST),
)
_add("native_layer_norm", Operation(Kind.NORMALIZATION, "trailing", "layer_norm"))
_add("native_layer_norm_backward", Operation(Kind.NORMALIZATION, "trailing_backward", "layer_norm_backward"))

# Along one dimension.
_along("cumprod cummax cummin logcumsumexp sort topk kthvalue median nanmedian mode", Kind.SCAN)
_along("glu glu_backward unfold_backward", Kind.SCAN)
_add("cumsum", Operation(Kind.SCAN, "along_dim", linear=Linear.ONE))

# Products.
_add("mm", Operation(Kind.PRODUCT, "mm", "mm", Linear.ONE))
_add("bmm", Operation(Kind.PRODUCT, "bmm", "bmm", Linear.ONE, narrows=True))
_add("addmm addmm_ over_rows product_over_rows times", Operation(Kind.PRODUCT))

# Convolutions and pooling.
_add("convolution", Operation(Kind.CONVOLUTION, "convolution"))
_add("convolution_backward", Operation(Kind.CONVOLUTION, "convolution_backward"))
_along(
    "avg_pool2d avg_pool2d_backward max_pool2d_with_indices max_pool2d_with_indices_backward "
    "_adaptive_avg_pool2d _adaptive_avg_pool2d_backward",
    Kind.CONVOLUTION,
    rows="planes",
)

# At places that are data.
_add("gather scatter scatter_add", Operation(Kind.INDEX, "gather"))
_add("index", Operation(Kind.INDEX, "index"))
_add("index_put", Operation(Kind.INDEX, "index_put", linear=Linear.ALL))
_add("index_add", Operation(Kind.INDEX, "index_add", linear=Linear.ALL))
_add("index_copy", Operation(Kind.INDEX, "index_add"))
_add("index_fill", Operation(Kind.INDEX, "index_fill"))
_along("index_select", Kind.INDEX)
_add("bucketize", Operation(Kind.INDEX, "bucketize"))
_add("embedding", Operation(Kind.INDEX, "embedding"))
_add("embedding_dense_backward", Operation(Kind.INDEX, "embedding_backward", linear=Linear.FIRST))


_OWN_NAMESPACES = frozenset({"aten", "throughtime"})


@cache
def name_of(target: OpOverload) -> str:
    """The name of an operation in the table: without overload, and with its namespace unless that is ATen or ours.

    An operation of a user may have any name, and must not be taken for the one of ATen with the same name.
    """
    name = str(target.overloadpacket.__name__)
    return name if target.namespace in _OWN_NAMESPACES else f"{target.namespace}::{name}"


def operation_of(target: OpOverload) -> Operation:
    """The line of the table for an operation; `UNKNOWN` if there is none."""
    found = OPERATIONS.get(name_of(target), UNKNOWN)
    # `max.other` and `min.other` compare two tensors; other overloads of their names are reductions.
    return POINTWISE if found.rows != "pointwise" and _is_tagged_pointwise(target) else found


@cache
def _is_tagged_pointwise(target: OpOverload) -> bool:
    """Whether torch says that an operation is pointwise, or that the operation it is the gradient of is."""
    if torch.Tag.pointwise in target.tags:
        return True
    name = name_of(target)
    forward = getattr(torch.ops.aten, name.removesuffix("_backward"), None) if name.endswith("_backward") else None
    return forward is not None and any(
        torch.Tag.pointwise in getattr(forward, each).tags for each in forward.overloads()
    )
