"""`torch.jit.trace`, and `torch.onnx.export(dynamo=False)`, which uses it: refused by every loop that reads values.

A trace has the operations of one call. Lengths, the number of steps and the answer to "is it finished?" would be
those of the example, for any input: wrong results without an error.
"""

from __future__ import annotations

from throughtime._errors import problem
from throughtime._torch_internals import is_jit_tracing


def check_not_traced(what: str, depends_on: str) -> None:
    """Raise if torch.jit records this call, for loops that run as many steps as `depends_on` says."""
    if not is_jit_tracing():
        return
    fix = (
        "Use torch.export, torch.compile or `torch.onnx.export(..., dynamo=True)`; torch.jit.trace takes tt.nn modules "
        "without `sequence_length`, and single steps of a cell."
    )
    got = f"torch.jit.trace or torch.onnx.export(dynamo=False), which would fix {depends_on} to that of the example"
    raise RuntimeError(problem(f"{what} cannot be traced", got=got, expected="a call that is not traced", fix=fix))
