"""Linear algebra: diagonals, inverses, factorisations."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import torch

from throughtime.tf1._namespace import exported
from throughtime.tf1.ops._helpers import plain, unary
from throughtime.tf1.ops._table import Static, Tensor, operation

Svd = namedtuple("Svd", ["s", "u", "v"])  # noqa: PYI024
Qr = namedtuple("Qr", ["q", "r"])  # noqa: PYI024

unary(
    "cholesky",
    "Cholesky",
    torch.linalg.cholesky,
    "The lower triangular root of a positive definite matrix.",
    argument="input",
)
unary("matrix_determinant", "MatrixDeterminant", torch.linalg.det, "The determinant.", argument="input")
unary(
    "matrix_square_root",
    "MatrixSquareRoot",
    lambda x: _square_root(x),  # noqa: PLW0108
    "A matrix with this square.",
    argument="input",
)
unary(
    "linalg.expm",
    "MatrixExponential",
    torch.linalg.matrix_exp,
    "The exponential of a matrix.",
    scope="matrix_exponential",
    argument="input",
)
unary("trace", "Trace", lambda x: torch.diagonal(x, 0, -2, -1).sum(-1), "The sum of the diagonal.")
unary(
    "diag",
    "Diag",
    lambda x: torch.diag(x.reshape(-1)).reshape(*x.shape, *x.shape),
    "A tensor with a diagonal.",
    argument="diagonal",
)
unary("diag_part", "DiagPart", lambda x: _diag_part(x), "The diagonal of a tensor.", argument="input")  # noqa: PLW0108
unary(
    "self_adjoint_eigvals",
    "SelfAdjointEigV2",
    lambda x: torch.linalg.eigvalsh(_symmetric(x)),
    "The eigenvalues of a symmetric matrix.",
    argument="tensor",
)
unary(
    "linalg.logdet",
    "logdet",
    lambda x: 2 * torch.log(torch.diagonal(torch.linalg.cholesky(x), 0, -2, -1)).sum(-1),
    "The logarithm of the determinant of a positive definite matrix.",
    scope="logdet",
    argument="matrix",
)


def _symmetric(x: Tensor) -> Tensor:
    """The matrix of the lower triangle: only that has a gradient."""
    return torch.tril(x) + torch.tril(x, -1).mH


def _diag_part(x: Tensor) -> Tensor:
    half = x.ndim // 2
    count = 1
    for size in x.shape[:half]:
        count *= size
    return torch.diagonal(x.reshape(count, count)).reshape(x.shape[:half])


def _square_root(x: Tensor) -> Tensor:
    values, vectors = torch.linalg.eig(x)
    root = vectors @ torch.diag_embed(torch.sqrt(values)) @ torch.linalg.inv(vectors)
    return root if x.is_complex() else root.real


@operation("linalg.logm", op_name="MatrixLogarithm", differentiable=False)
def logm(input: Tensor) -> Tensor:  # noqa: A002
    """The logarithm of a matrix of complex numbers."""
    values, vectors = torch.linalg.eig(input)
    return vectors @ torch.diag_embed(torch.log(values)) @ torch.linalg.inv(vectors)


@operation("matrix_inverse", op_name="MatrixInverse")
def matrix_inverse(input: Tensor, adjoint: Static = False) -> Tensor:  # noqa: A002
    """The inverse of a matrix, or of its adjoint."""
    return torch.linalg.inv(input.mH if adjoint else input)


@operation("linalg.slogdet", op_name="LogMatrixDeterminant")
def slogdet(input: Tensor) -> tuple[Tensor, Tensor]:  # noqa: A002
    """The sign of the determinant, and the logarithm of its size."""
    found = torch.linalg.slogdet(input)
    return found.sign, found.logabsdet


@operation("matrix_solve", op_name="MatrixSolve", same_dtype=("matrix", "rhs"))
def matrix_solve(matrix: Tensor, rhs: Tensor, adjoint: Static = False) -> Tensor:
    """The solution of linear equations."""
    return torch.linalg.solve(matrix.mH if adjoint else matrix, rhs)


@operation("matrix_triangular_solve", op_name="MatrixTriangularSolve", same_dtype=("matrix", "rhs"))
def matrix_triangular_solve(matrix: Tensor, rhs: Tensor, lower: Static = True, adjoint: Static = False) -> Tensor:
    """The solution of triangular equations."""
    upper = not lower
    return torch.linalg.solve_triangular(matrix.mH if adjoint else matrix, rhs, upper=upper != bool(adjoint))


@operation("cholesky_solve", op_name="cholesky_solve", same_dtype=("chol", "rhs"))
def cholesky_solve(chol: Tensor, rhs: Tensor) -> Tensor:
    """The solution of equations with a matrix given by its Cholesky factor."""
    return torch.cholesky_solve(rhs, torch.tril(chol))


@operation("matrix_solve_ls", op_name="MatrixSolveLs", scope="matrix_solve_ls", same_dtype=("matrix", "rhs"))
def matrix_solve_ls(matrix: Tensor, rhs: Tensor, l2_regularizer: Static = 0.0, fast: Static = True) -> Tensor:
    """The least squares solution of linear equations."""
    size = matrix.shape[-1]
    square = matrix.mT @ matrix + plain(l2_regularizer) * torch.eye(size, dtype=matrix.dtype)
    return torch.linalg.solve(square, matrix.mT @ rhs)


@operation("qr", op_name="Qr")
def _qr(input: Tensor, full_matrices: Static = False) -> tuple[Tensor, Tensor]:  # noqa: A002
    """An orthogonal and an upper triangular factor."""
    q, r = torch.linalg.qr(input, "complete" if full_matrices else "reduced")
    return q, r


@operation("svd", op_name="Svd")
def _svd(tensor: Tensor, full_matrices: Static = False, compute_uv: Static = True) -> Any:
    """Singular values, and left and right singular vectors."""
    if not compute_uv:
        return torch.linalg.svdvals(tensor)
    u, s, vh = torch.linalg.svd(tensor, bool(full_matrices))
    return s, u, vh.mH


@exported("qr", "linalg.qr")
def qr(input: Any, full_matrices: bool = False, name: str | None = None) -> Any:  # noqa: A002
    """An orthogonal factor `q` and an upper triangular factor `r`."""
    return Qr(*_qr(input, full_matrices, name=name))


@exported("svd", "linalg.svd")
def svd(tensor: Any, full_matrices: bool = False, compute_uv: bool = True, name: str | None = None) -> Any:
    """Singular values `s`, and the vectors `u` and `v` if they are asked for."""
    found = _svd(tensor, full_matrices, compute_uv, name=name)
    return Svd(*found) if compute_uv else found


@operation("self_adjoint_eig", op_name="SelfAdjointEigV2")
def self_adjoint_eig(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors of a symmetric matrix."""
    values, vectors = torch.linalg.eigh(tensor)
    return values, vectors


@operation("linalg.pinv", op_name="pinv", scope="pinv")
def pinv(a: Tensor, rcond: Static = None, validate_args: Static = False) -> Tensor:
    """The pseudo-inverse."""
    return torch.linalg.pinv(a) if rcond is None else torch.linalg.pinv(a, rcond=float(rcond))


@operation("linalg.matrix_rank", op_name="matrix_rank", scope="matrix_rank", differentiable=False)
def matrix_rank(a: Tensor, tol: Static = None, validate_args: Static = False) -> Tensor:
    """The rank of a matrix."""
    return (torch.linalg.matrix_rank(a) if tol is None else torch.linalg.matrix_rank(a, tol=plain(tol))).to(torch.int32)


@operation("linalg.lu", op_name="Lu", differentiable=False)
def lu(input: Tensor, output_idx_type: Static = "int32") -> tuple[Tensor, Tensor]:  # noqa: A002
    """Both triangular factors in one matrix, and the permutation of rows."""
    factors, pivots = torch.linalg.lu_factor(input)
    if factors.is_meta:
        return factors, torch.empty_like(pivots)
    permutation, _, _ = torch.lu_unpack(factors, pivots)
    return factors, torch.argmax(permutation.mT.to(torch.uint8), -1).to(torch.int32)


@operation(
    "matrix_diag",
    op_name="MatrixDiag",
    scope="diag",
    positional=("diagonal", "name", "k", "num_rows", "num_cols", "padding_value"),
)
def matrix_diag(
    diagonal: Tensor, k: Static = 0, num_rows: Static = -1, num_cols: Static = -1, padding_value: Static = 0
) -> Tensor:
    """Matrices with these diagonals."""
    if (num_rows, num_cols, padding_value) != (-1, -1, 0):
        raise NotImplementedError("tf.matrix_diag: num_rows, num_cols and padding_value are not supported; use tf.pad")
    return torch.diag_embed(diagonal, int(plain(k)))


@operation(
    "matrix_diag_part", op_name="MatrixDiagPart", scope="diag_part", positional=("input", "name", "k", "padding_value")
)
def matrix_diag_part(input: Tensor, k: Static = 0, padding_value: Static = 0) -> Tensor:  # noqa: A002
    """The diagonals of matrices."""
    return torch.diagonal(input, int(plain(k)), -2, -1)


@operation(
    "matrix_set_diag",
    op_name="MatrixSetDiag",
    scope="set_diag",
    same_dtype=("input", "diagonal"),
    positional=("input", "diagonal", "name", "k"),
)
def matrix_set_diag(input: Tensor, diagonal: Tensor, k: Static = 0) -> Tensor:  # noqa: A002
    """Matrices with other diagonals."""
    return torch.diagonal_scatter(input, diagonal, int(plain(k)), -2, -1)


@operation("matrix_band_part", op_name="MatrixBandPart")
def matrix_band_part(input: Tensor, num_lower: Static, num_upper: Static) -> Tensor:  # noqa: A002
    """Matrices with zeros outside of a band around the diagonal; -1 has all diagonals on that side."""
    lower, upper = int(plain(num_lower)), int(plain(num_upper))
    rows = torch.arange(input.shape[-2], device=input.device).unsqueeze(1)
    columns = torch.arange(input.shape[-1], device=input.device)
    inside = ((rows - columns <= lower) if lower >= 0 else True) & (
        (columns - rows <= upper) if upper >= 0 else torch.ones_like(rows + columns, dtype=torch.bool)
    )
    return torch.where(inside, input, torch.zeros((), dtype=input.dtype))


@operation(
    "linalg.tridiagonal_solve",
    op_name="TridiagonalSolve",
    scope="tridiagonal_solve",
    positional=(
        "diagonals", "rhs", "diagonals_format", "transpose_rhs", "conjugate_rhs", "name", "partial_pivoting",
    ),
)  # fmt: skip
def tridiagonal_solve(
    diagonals: Tensor,
    rhs: Tensor,
    diagonals_format: Static = "compact",
    transpose_rhs: Static = False,
    conjugate_rhs: Static = False,
    partial_pivoting: Static = True,
) -> Tensor:
    """The solution of equations with a matrix given by its three diagonals `[3, n]`: above, main, below."""
    if diagonals_format != "compact":
        raise NotImplementedError("tf.linalg.tridiagonal_solve: diagonals_format must be 'compact'")
    rhs = rhs.mT if transpose_rhs else rhs
    rhs = rhs.conj() if conjugate_rhs else rhs
    above, main, below = diagonals.unbind(-2)
    matrix = torch.diag_embed(main) + torch.diag_embed(above[..., :-1], 1) + torch.diag_embed(below[..., 1:], -1)
    vector = rhs.ndim == diagonals.ndim - 1
    found = torch.linalg.solve(matrix, rhs.unsqueeze(-1) if vector else rhs)
    return found.squeeze(-1) if vector else found
