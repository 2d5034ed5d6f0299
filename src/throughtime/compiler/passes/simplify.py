"""Passes that make a step graph smaller, and its products separable: each returns a new list of nodes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import torch

from throughtime._torch_internals import OpOverload
from throughtime.compiler.ir.graph import ROWS, Dim, Graph, Node, Value, map_values

aten = torch.ops.aten


class Rewriter:
    """Builds a new list of nodes from an old one; `resolve` tells what has become of a value."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._replaced: dict[Value, Value] = {}

    def resolve(self, value: Value) -> Value:
        """What stands for `value` now."""
        while value in self._replaced:
            value = self._replaced[value]
        return value

    def replace(self, old: Value, new: Value) -> None:
        """From here on, `new` stands for `old`."""
        self._replaced[old] = new

    def keep(self, node: Node) -> None:
        """The node as it is, on what has become of its arguments."""
        self.nodes.append(node.substituted(self.resolve))

    def call(self, target: OpOverload, *args: Any, shape: Iterable[Dim], like: Value, name: str | None = None) -> Value:
        """A new node; its result has the dtype of `like`."""
        result = Value(name or target.overloadpacket.__name__, tuple(shape), like.dtype)
        self.nodes.append(Node(target, args, {}, (result,)))
        return result


Pass = Callable[[Graph], Rewriter]


def split_products(graph: Graph, cotangents: Iterable[Value], recurring: Iterable[Value]) -> Rewriter:
    """`cat([x, h]) @ W` becomes `x @ W[:I] + h @ W[I:]`, so that the part without state can leave the loop.

    The same for its gradients: a piece of `g @ W.T` is `g @` a piece of `W.T`, and the rows of `cat([x, h]).T @ g` are
    those of `x.T @ g` and of `h.T @ g`. The `recurring` ones of the `cotangents` are those of the state.
    Gradients of all gates that recur stay in the loop whichever way, and one product of them is better there.
    """
    made, users = graph.producers(), graph.users()
    gradients, in_loop = _made_of(graph, cotangents), _made_of(graph, recurring)
    rewriter = Rewriter()
    for node in graph.nodes:
        if node.name == "mm":
            left, right = node.args
            joined, transposed = _joined_features(made, left)
            if joined is not None and _is_worth_splitting(joined, users, gradients, in_loop):
                rewriter.replace(node.result, _split_mm(rewriter, node, joined, transposed))
                continue
            if _is_cut_up(node.result, users, graph):
                continue
        if node.name == "slice" and _is_cut_up(node.args[0], users, graph) and _is_mm(made, node.args[0]):
            left, right = map(rewriter.resolve, made[node.args[0]].args)
            start, stop = node.args[2:4]
            stop = min(stop, right.shape[1])
            piece = rewriter.call(
                aten.slice.Tensor, right, 1, start, stop, shape=(right.shape[0], stop - start), like=right
            )
            rewriter.replace(
                node.result, rewriter.call(aten.mm.default, left, piece, shape=node.result.shape, like=node.result)
            )
            continue
        rewriter.keep(node)
    return rewriter


def _made_of(graph: Graph, sources: Iterable[Value]) -> set[Value]:
    """The sources, and all that depends on one of them."""
    found = set(sources)
    for node in graph.nodes:
        if not found.isdisjoint(node.values):
            found.update(node.results)
    return found


def _is_worth_splitting(
    joined: Node, users: dict[Value, list[Node]], gradients: set[Value], in_loop: set[Value]
) -> bool:
    """Whether parts have features and, if they are gradients that recur, are wanted elsewhere one by one as well."""
    parts = [part for part in joined.args[0] if part.shape[1]]
    if gradients.isdisjoint(parts) or not in_loop.issuperset(parts):
        return bool(parts)
    # Then they would be stored twice, alone and side by side.
    return any(user is not joined for part in parts for user in users[part])


def _joined_features(made: dict[Value, Node], left: Value) -> tuple[Node | None, bool]:
    """The `cat` of features that `left` is, or is the transpose of."""
    node = made.get(left)
    if node is not None and node.name == "t":
        joined = made.get(node.args[0])
        return (joined, True) if joined is not None and _joins_features(joined) else (None, True)
    return (node, False) if node is not None and _joins_features(node) else (None, False)


def _joins_features(node: Node) -> bool:
    if node.name != "cat" or node.result.row_axis != 0 or len(node.result.shape) != 2 or node.arg("dim") % 2 != 1:
        return False
    # A join of several dtypes converts some of its parts.
    return {part.dtype for part in node.args[0]} == {node.result.dtype}


def _split_mm(rewriter: Rewriter, node: Node, joined: Node, transposed: bool) -> Value:
    right = rewriter.resolve(node.args[1])
    parts, start = [], 0
    for old in joined.args[0]:
        part = rewriter.resolve(old)
        width = part.shape[1]
        assert isinstance(width, int)
        stop = start + width
        if transposed:
            turned = rewriter.call(aten.t.default, part, shape=(width, ROWS), like=part)
            shape: tuple[Dim, ...] = (width, right.shape[1])
            parts.append(rewriter.call(aten.mm.default, turned, right, shape=shape, like=node.result))
        elif width:
            weights = rewriter.call(aten.slice.Tensor, right, 0, start, stop, shape=(width, right.shape[1]), like=right)
            parts.append(rewriter.call(aten.mm.default, part, weights, shape=node.result.shape, like=node.result))
        start = stop
    if transposed:
        return rewriter.call(aten.cat.default, parts, 0, shape=node.result.shape, like=node.result)
    total = parts[0]
    for part in parts[1:]:
        total = rewriter.call(aten.add.Tensor, total, part, shape=node.result.shape, like=node.result)
    return total


def _is_mm(made: dict[Value, Node], value: Value) -> bool:
    return value in made and made[value].name == "mm"


def _is_cut_up(value: Value, users: dict[Value, list[Node]], graph: Graph) -> bool:
    """Whether only column ranges of a value with rows are ever used."""
    used = users.get(value, [])
    return (
        bool(used)
        and value not in graph.results
        and value.row_axis == 0
        and len(value.shape) == 2
        and all(
            user.name == "slice" and user.arg("dim") in (1, -1) and user.arg("step") == 1 and len(user.args) >= 4
            for user in used
        )
    )


def turn_products(graph: Graph) -> Rewriter:
    """Products on columns, `W @ h.T`, become products on rows, `(h @ W.T).T`; turning twice is not turning at all."""
    rewriter = Rewriter()
    turned: dict[Value, Value] = {}
    for node in graph.nodes:
        if _is_transpose(node):
            source = rewriter.resolve(node.args[0])
            turned[node.result] = source
            if source in turned:
                rewriter.replace(node.result, turned[source])
                continue
        elif node.name == "mm":
            left, right = map(rewriter.resolve, node.args)
            if not left.has_rows and right.row_axis == 1 and right in turned:
                weights = rewriter.call(aten.t.default, left, shape=left.shape[::-1], like=left)
                shape = node.result.shape[::-1]
                product = rewriter.call(aten.mm.default, turned[right], weights, shape=shape, like=node.result)
                result = rewriter.call(aten.t.default, product, shape=node.result.shape, like=node.result)
                turned[result] = product
                rewriter.replace(node.result, result)
                continue
        elif _turns(node, rewriter, turned):
            shape, swap = node.result.shape[::-1], {value: rewriter.resolve(value) for value in node.values}
            swap = {value: turned.get(now, now) for value, now in swap.items()}
            args, kwargs = map_values(swap.__getitem__, (node.args, node.kwargs))
            straight = Value(node.result.name, shape, node.result.dtype)
            rewriter.nodes.append(Node(node.target, args, kwargs, (straight,)))
            result = rewriter.call(aten.t.default, straight, shape=node.result.shape, like=node.result)
            turned[result] = straight
            rewriter.replace(node.result, result)
            continue
        rewriter.keep(node)
    return rewriter


def _turns(node: Node, rewriter: Rewriter, turned: dict[Value, Value]) -> bool:
    """Whether a pointwise operation is on columns only, with nothing that would have to be turned the other way."""
    if not node.is_pointwise or node.result.row_axis != 1 or len(node.result.shape) != 2:
        return False
    values = [rewriter.resolve(value) for value in node.values]
    return all(value in turned or not value.shape for value in values)


def _is_transpose(node: Node) -> bool:
    if node.name == "t" or (node.name == "transpose" and {node.args[1] % 2, node.args[2] % 2} == {0, 1}):
        return len(node.result.shape) == 2
    return node.name == "permute" and len(node.result.shape) == 2 and [dim % 2 for dim in node.args[1]] == [1, 0]


def split_groups(graph: Graph, most: int) -> Rewriter:
    """`[G, n, K] @ [G, K, F]` becomes G products of rows with one matrix each, if G is at most `most`."""
    rewriter = Rewriter()
    for node in graph.nodes:
        groups = node.result.shape[0] if node.name == "bmm" else 0
        axes = [value.row_axis for value in node.args[:2]] if node.name == "bmm" else []
        if axes not in ([1, None], [None, 2]) or not isinstance(groups, int) or groups > most:
            rewriter.keep(node)
            continue
        left, right = map(rewriter.resolve, node.args)
        if axes == [1, None]:
            rewriter.replace(node.result, _by_groups(rewriter, left, right, groups))
        else:
            turned = _by_groups(rewriter, _last_turned(rewriter, right), _last_turned(rewriter, left), groups)
            rewriter.replace(node.result, _last_turned(rewriter, turned))
    return rewriter


def _by_groups(rewriter: Rewriter, rows: Value, matrices: Value, groups: int) -> Value:
    shape = (ROWS, matrices.shape[2])
    products = []
    for group in range(groups):
        pair = [
            rewriter.call(aten.select.int, value, 0, group, shape=value.shape[1:], like=value)
            for value in (rows, matrices)
        ]
        products.append(rewriter.call(aten.mm.default, *pair, shape=shape, like=rows))
    if groups == 1:
        return rewriter.call(aten.unsqueeze.default, products[0], 0, shape=(1, *shape), like=rows)
    return rewriter.call(aten.stack.default, products, 0, shape=(groups, *shape), like=rows)


def _last_turned(rewriter: Rewriter, value: Value) -> Value:
    """The last two dimensions swapped."""
    first, one, other = value.shape
    return rewriter.call(aten.transpose.int, value, 1, 2, shape=(first, other, one), like=value)


def split_masks(graph: Graph) -> Rewriter:
    """An operation that computes gradients of rows and of parameters at once becomes two: only one is in the loop."""
    rewriter = Rewriter()
    for node in graph.nodes:
        names = [argument.name for argument in node.target._schema.arguments]
        if "output_mask" not in names:
            rewriter.keep(node)
            continue
        place = names.index("output_mask")
        mask = node.arg("output_mask")
        for with_rows in (True, False):
            chosen = [bool(m) and value.has_rows == with_rows for m, value in zip(mask, node.results, strict=True)]
            if any(chosen):
                args = (*node.args[:place], chosen, *node.args[place + 1 :])
                results = tuple(
                    value if want else Value("unused", (), value.dtype)
                    for value, want in zip(node.results, chosen, strict=True)
                )
                rewriter.keep(Node(node.target, args, node.kwargs, results))
    return rewriter


def drop_identities(graph: Graph) -> Rewriter:
    """Views, casts and copies that change nothing."""
    rewriter = Rewriter()
    for node in graph.nodes:
        if _is_identity(node):
            rewriter.replace(node.result, node.args[0])
        elif node.name in ("view", "_unsafe_view") and not _is_line(node.args[0]):
            # Elements that lay side by side when the step was traced need not do so when it runs.
            rewriter.keep(Node(aten.reshape.default, node.args, node.kwargs, node.results))
        else:
            rewriter.keep(node)
    return rewriter


def _is_identity(node: Node) -> bool:
    if node.name == "permute":
        dims = node.args[1]
        return [dim % len(dims) for dim in dims] == list(range(len(dims)))
    return node.operation.keeps_order and node.args[0].shape == node.result.shape and _same_dtype(node)


def _is_line(value: Value) -> bool:
    """Whether there is but one dimension, which lies in order whatever its strides."""
    return sum(size != 1 for size in value.shape) <= 1


def _same_dtype(node: Node) -> bool:
    return bool(node.args[0].dtype == node.result.dtype)


def merge_slices(graph: Graph) -> Rewriter:
    """A slice of a slice is one slice; a slice that is exactly one part of a `cat` is that part."""
    made = graph.producers()
    rewriter = Rewriter()
    for node in graph.nodes:
        inner = made.get(node.args[0]) if _is_range(node) else None
        if inner is not None and _is_range(inner) and inner.args[1] == node.args[1]:
            start = inner.args[2] + node.args[2]
            stop = min(inner.args[2] + node.args[3], inner.args[3])
            rewriter.keep(Node(node.target, (inner.args[0], node.args[1], start, stop), {}, node.results))
            made[node.result] = rewriter.nodes[-1]
            continue
        if inner is not None and inner.name == "cat" and node.arg("dim") == inner.arg("dim"):
            part = _part_of(inner, node.args[2], node.args[3])
            if part is not None:
                rewriter.replace(node.result, part)
                continue
        rewriter.keep(node)
    return rewriter


def flatten_joins(graph: Graph) -> Rewriter:
    """`cat([cat([x, y]), h])` becomes `cat([x, y, h])`."""
    made = graph.producers()
    rewriter = Rewriter()
    for node in graph.nodes:
        parts = _flat_parts(node, made) if node.name == "cat" else []
        if parts and len(parts) > len(node.args[0]):
            rewriter.keep(Node(node.target, (parts, *node.args[1:]), node.kwargs, node.results))
            made[node.result] = rewriter.nodes[-1]
        else:
            rewriter.keep(node)
    return rewriter


def _flat_parts(joined: Node, made: dict[Value, Node]) -> list[Value]:
    parts: list[Value] = []
    for part in joined.args[0]:
        inner = made.get(part)
        if inner is not None and inner.name == "cat" and inner.arg("dim") == joined.arg("dim"):
            parts += inner.args[0] if part.dtype == joined.result.dtype else [part]
        else:
            parts.append(part)
    return parts


def _is_range(node: Node) -> bool:
    """Whether a node cuts out neighbours, from a start to a stop that are both known."""
    known = len(node.args) >= 4 and all(isinstance(arg, int) for arg in node.args[1:4])
    return node.name == "slice" and known and node.arg("step") == 1


def _part_of(joined: Node, start: int, stop: int) -> Value | None:
    position = 0
    for part in joined.args[0]:
        size = part.shape[joined.arg("dim")]
        if (position, position + size) == (start, stop):
            found: Value = part
            return found
        position += size
    return None


Piece = tuple[int, int, Value]
"""Where a part of a row starts and stops, and the part."""


def join_padded(graph: Graph) -> Rewriter:
    """Gradients of slices: a sum of pieces written into zeros, if they do not overlap, is the pieces side by side."""
    made = graph.producers()
    rewriter = Rewriter()
    pieces: dict[Value, list[Piece]] = {}
    # The zeros that pieces were written into.
    blank: dict[Value, Node] = {}
    for node in graph.nodes:
        found = _pieces(node, made, pieces)
        if found is None:
            rewriter.keep(node)
        else:
            # Sums that are only parts of larger ones are written out too, and then used by nobody.
            pieces[node.result] = found
            zeros = blank[node.result] = blank.get(node.args[0]) or made[node.args[0]]
            rewriter.replace(node.result, _side_by_side(rewriter, node.result, found, zeros))
    return rewriter


def _pieces(node: Node, made: dict[Value, Node], known: dict[Value, list[Piece]]) -> list[Piece] | None:
    """What a node writes into zeros, in order; None if it is not of that kind."""
    if node.name == "slice_scatter":
        whole, piece = node.args[:2]
        of_zeros = whole in made and made[whole].name == "zeros" and whole.row_axis == 0
        if not of_zeros or node.arg("dim") % len(whole.shape) != 1 or node.arg("step") != 1:
            return None
        if piece.dtype != whole.dtype:
            return None
        start, stop = node.arg("start") or 0, node.arg("end")
        return [(start, whole.shape[1] if stop is None else min(stop, whole.shape[1]), piece)]
    is_sum = node.name == "add" and node.arg("alpha") == 1 and all(arg in known for arg in node.args[:2])
    if is_sum and all(arg.shape == node.result.shape for arg in node.args[:2]):
        joined = sorted(known[node.args[0]] + known[node.args[1]], key=lambda piece: piece[0])
        if all(one[1] <= other[0] for one, other in itertools.pairwise(joined)):
            return joined
    return None


def _side_by_side(rewriter: Rewriter, whole: Value, pieces: list[Piece], zeros: Node) -> Value:
    width = whole.shape[1]
    assert isinstance(width, int)
    parts, position = [], 0
    for start, stop, piece in [*pieces, (width, width, whole)]:
        if start > position:
            gap = Value("zeros", (ROWS, start - position, *whole.shape[2:]), whole.dtype)
            # Where the others were: on the same device.
            rewriter.nodes.append(Node(zeros.target, (list(gap.shape),), zeros.kwargs, (gap,)))
            parts.append(gap)
        if piece is not whole:
            parts.append(rewriter.resolve(piece))
        position = stop
    return parts[0] if len(parts) == 1 else rewriter.call(aten.cat.default, parts, 1, shape=whole.shape, like=whole)


def merge_equal(graph: Graph) -> Rewriter:
    """Common subexpressions: what is computed twice from the same values is computed once."""
    rewriter = Rewriter()
    seen: dict[Any, Node] = {}
    for old in graph.nodes:
        node = old.substituted(rewriter.resolve)
        key = None if node.is_random else _key((node.target, node.args, node.kwargs, node.results[0].dtype))
        if key is not None and key in seen:
            for value, same in zip(node.results, seen[key].results, strict=True):
                rewriter.replace(value, same)
            continue
        if key is not None:
            seen[key] = node
        rewriter.keep(node)
    return rewriter


def _key(tree: Any) -> Any:
    if isinstance(tree, tuple | list):
        return tuple(map(_key, tree))
    if isinstance(tree, dict):
        return tuple((name, _key(part)) for name, part in tree.items())
    # 1, 1.0 and True are equal, but not the same; nor are 0.0 and -0.0.
    return (type(tree), repr(tree)) if isinstance(tree, int | float) else tree


def simplification_passes(
    cotangents: Iterable[Value], recurring: Iterable[Value], most_groups: int = 1
) -> tuple[Pass, ...]:
    """The passes in their order; the arguments are those of `split_products` and `split_groups`."""
    return (
        lambda graph: split_groups(graph, most_groups),
        split_masks,
        drop_identities,
        turn_products,
        merge_slices,
        join_padded,
        flatten_joins,
        lambda graph: split_products(graph, cotangents, recurring),
        merge_slices,
        merge_equal,
    )
