"""`tf1.explain`: what the engine does with an unroll of the graph."""

from __future__ import annotations

from typing import Any

from throughtime.runtime.explanation import Explanation
from throughtime.tf1._namespace import exported
from throughtime.tf1.graph._operation import Operation, Tensor
from throughtime.tf1.rnn._dynamic import RNN
from throughtime.tf1.rnn._engine import explained


@exported("explain")
def explain(fetch: Any, session: Any = None, feed_dict: Any = None) -> Explanation | str:
    """The engine's plan of the unroll that `fetch` comes from; for one that a plain loop runs, the reason."""
    from throughtime.tf1.session._default import get_default_session  # noqa: PLC0415

    op = _unroll_of(fetch.op if isinstance(fetch, Tensor) else fetch)
    node = op.attrs["unroll"]
    if node.kind is None:
        return f"a plain loop runs it: {node.refusal}"
    session = session or get_default_session()
    if session is None:
        raise ValueError("tf1.explain needs a session: pass session=, or use it inside of `with tf.Session():`")
    values = session.tensors(op.inputs, feed_dict)
    inputs, lengths, state, captures = node.opened(values)
    return explained(node.kind, captures, inputs, lengths, state, node.dtype, **node.order)


def _unroll_of(op: Operation) -> Operation:
    """The nearest unroll that `op` depends on."""
    stack, seen = [op], {op}
    while stack:
        one = stack.pop(0)
        if one.type == RNN:
            return one
        for tensor in one.inputs:
            if tensor.op not in seen:
                seen.add(tensor.op)
                stack.append(tensor.op)
    raise ValueError(f"{op.name!r} does not depend on an unroll; pass an output or a state of tf.nn.dynamic_rnn")
