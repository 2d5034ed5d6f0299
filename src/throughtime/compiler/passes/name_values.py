"""Names of values, as listings and kernels show them."""

from __future__ import annotations

import re

from throughtime.compiler.trace.trace import Trace


def name_values(traced: Trace) -> None:
    """Make names unique; new states are named after the states that they replace."""
    made = [value for node in traced.graph.nodes for value in node.results]
    for value in made:
        value.name = re.sub(r"(_\d+)+$", "", value.name)
    for output, cotangent in zip(traced.outputs, traced.output_cotangents, strict=True):
        if output in made:
            output.name = "output"
        if cotangent is not None:
            cotangent.name = "d_output"
    for old, new, cotangent in zip(traced.state, traced.new_state, traced.state_cotangents, strict=True):
        if new in made:
            new.name = f"new_{old.name}"
        if cotangent is not None:
            cotangent.name = f"d_new_{old.name}"
    taken: set[str] = set()
    counts: dict[str, int] = {}
    for value in (*traced.given, *made):
        base = value.name
        while value.name in taken:
            counts[base] = counts.get(base, 0) + 1
            value.name = f"{base}_{counts[base]}"
        taken.add(value.name)
