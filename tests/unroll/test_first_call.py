"""What the first call of a process imports: neither Dynamo nor sympy, which take longer than torch itself."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.covers("compiler")

SCRIPT = """
import sys, torch
import throughtime as tt

x = torch.randn(2, 5, 4, requires_grad=True)
for cell in (tt.LSTMCell(8, input_size=4), tt.GRUCell(8, input_size=4)):
    outputs, _ = tt.dynamic_rnn(cell, x, [5, 2], dtype=torch.float32)
    outputs.sum().backward()
model = tt.nn.LSTM(4, 8)
expected = model(x)[0]
print(sorted({"sympy", "torch._dynamo"} & set(sys.modules)))
# The drop-in modules are let in when torch.compile imports Dynamo.
compiled = torch.compile(model, backend="eager", fullgraph=True)
print(torch.equal(compiled(x)[0], expected), "torch._dynamo" in sys.modules)
"""


def test_dynamo_waits_for_torch_compile() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["[]", "True True"], done.stderr
