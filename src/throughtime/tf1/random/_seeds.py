"""Seeds of operations, derived from the graph's seed and the operation's as TensorFlow derives them."""

from __future__ import annotations

from throughtime.tf1._namespace import exported
from throughtime.tf1.graph._graph import get_default_graph

DEFAULT_GRAPH_SEED = 87654321
_LARGEST = (1 << 31) - 1


@exported("get_seed", "random.get_seed")
def get_seed(op_seed: int | None) -> tuple[int | None, int | None]:
    """Both seeds of an operation; both None if neither the graph nor the operation has one.

    Without a seed of its own, an operation takes the number of operations made before it.
    """
    graph = get_default_graph()
    if graph.seed is not None:
        second = graph._last_id if op_seed is None else op_seed
        seeds = graph.seed % _LARGEST, second % _LARGEST
    elif op_seed is not None:
        seeds = DEFAULT_GRAPH_SEED, op_seed % _LARGEST
    else:
        return None, None
    return seeds if seeds != (0, 0) else (0, _LARGEST)
