"""Operations of our own for nodes of a graph: weight-gradient and input-gradient GEMMs.

Only their schemas: a graph names them, and the code generated for its sections calls the native kernels.
"""

from __future__ import annotations

import torch

_library = torch.library.Library("throughtime", "FRAGMENT")
_library.define("over_rows(Tensor[] g, Tensor[] parts, bool sum_parts=False) -> (Tensor, Tensor)")
_library.define("product_over_rows(Tensor a, Tensor g) -> Tensor")
_library.define("times(Tensor[] rows, Tensor[] matrices) -> Tensor")
_library.define("times.out(Tensor[] rows, Tensor[] matrices, *, Tensor(a!) out) -> Tensor(a!)")

OVER_ROWS = torch.ops.throughtime.over_rows.default
PRODUCT_OVER_ROWS = torch.ops.throughtime.product_over_rows.default
TIMES = torch.ops.throughtime.times.default
