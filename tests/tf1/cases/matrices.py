"""Linear algebra: factorisations, inverses, diagonals, bands."""

import numpy as np

from .case import case, floats, spd

_m = floats(3, 3, salt=4) + 3 * np.eye(3, dtype="float32")
_batch = floats(2, 3, 3, salt=5) + 3 * np.eye(3, dtype="float32")
_lower = np.tril(spd(3, 3))
for _name in ("matrix_determinant", "matrix_inverse", "linalg.det", "linalg.inv", "linalg.slogdet", "linalg.expm"):
    for _label, _x in (("one", _m), ("batch", _batch)):
        case(
            _name,
            lambda tf, x, f=_name: (getattr(tf.linalg, f[7:]) if f.startswith("linalg") else getattr(tf, f))(x),
            _label,
            x=_x / 4 if "expm" in _name else _x,
            tolerance=1e-4,
        )
case(
    "matrix_inverse", lambda tf, x: tf.matrix_inverse(x, adjoint=True), "adjoint", x=_m, tolerance=1e-4, gradients=False
)
case("linalg.logdet", lambda tf, x: tf.linalg.logdet(x), x=spd(3, 3), tolerance=1e-4)
case("cholesky", lambda tf, x: tf.cholesky(x), x=spd(3, 3), tolerance=1e-4)
case("cholesky", lambda tf, x: tf.cholesky(x), "batch", x=spd(2, 3, 3), tolerance=1e-4)
case(
    "cholesky_solve",
    lambda tf, c, y: tf.cholesky_solve(c, y),
    c=np.linalg.cholesky(spd(3, 3)).astype("float32"),
    y=floats(3, 2),
    tolerance=1e-4,
)
for _label, _keywords in {"plain": {}, "adjoint": {"adjoint": True}}.items():
    case(
        "matrix_solve",
        lambda tf, a, b, k=_keywords: tf.matrix_solve(a, b, **k),
        _label,
        a=_m,
        b=floats(3, 2),
        tolerance=1e-4,
    )
    case(
        "matrix_triangular_solve",
        lambda tf, a, b, k=_keywords: tf.matrix_triangular_solve(a, b, **k),
        _label,
        a=_lower,
        b=floats(3, 2),
        tolerance=1e-4,
    )
case(
    "matrix_triangular_solve",
    lambda tf, a, b: tf.matrix_triangular_solve(a, b, lower=False),
    "upper",
    a=np.ascontiguousarray(_lower.T),
    b=floats(3, 2),
    tolerance=1e-4,
)
case(
    "matrix_solve_ls",
    lambda tf, a, b: tf.matrix_solve_ls(a, b),
    a=floats(5, 3),
    b=floats(5, 2),
    tolerance=1e-4,
    gradients=False,
)
case(
    "matrix_solve_ls",
    lambda tf, a, b: tf.matrix_solve_ls(a, b, l2_regularizer=0.5),
    "l2",
    a=floats(5, 3),
    b=floats(5, 2),
    tolerance=1e-4,
    gradients=False,
)
case("matrix_square_root", lambda tf, x: tf.matrix_square_root(x), x=spd(3, 3), tolerance=1e-4, gradients=False)
case(
    "linalg.logm",
    lambda tf, x: tf.real(tf.linalg.logm(tf.cast(x, tf.complex64))),
    x=spd(3, 3),
    tolerance=1e-4,
    gradients=False,
)
case("qr", lambda tf, x: [tf.abs(part) for part in tf.qr(x)], x=floats(4, 3), tolerance=1e-4, gradients=False)
case(
    "qr", lambda tf, x: tf.abs(tf.qr(x, full_matrices=True).r), "full", x=floats(4, 3), tolerance=1e-4, gradients=False
)
case("svd", lambda tf, x: tf.svd(x, compute_uv=False), "values", x=floats(4, 3), tolerance=1e-4)
case("svd", lambda tf, x: [tf.abs(part) for part in tf.svd(x)], x=floats(4, 3), tolerance=1e-4, gradients=False)
case(
    "self_adjoint_eig",
    lambda tf, x: [tf.abs(part) for part in tf.self_adjoint_eig(x)],
    x=spd(3, 3),
    tolerance=1e-4,
    gradients=False,
)
case("self_adjoint_eigvals", lambda tf, x: tf.self_adjoint_eigvals(x), x=spd(3, 3), tolerance=1e-4)
case("linalg.pinv", lambda tf, x: tf.linalg.pinv(x), x=floats(4, 3), tolerance=1e-4, gradients=False)
case("linalg.matrix_rank", lambda tf, x: tf.linalg.matrix_rank(x), x=floats(4, 3))
case("linalg.lu", lambda tf, x: tf.linalg.lu(x), x=_m, tolerance=1e-4, gradients=False)
case("linalg.adjoint", lambda tf, x: tf.linalg.adjoint(x), x=floats(2, 3))
case(
    "linalg.tridiagonal_solve",
    lambda tf, d, y: tf.linalg.tridiagonal_solve(d, y),
    d=floats(3, 4) + np.array([[0], [5], [0]], "float32"),
    y=floats(4),
    tolerance=1e-4,
    gradients=False,
    shapes=False,
)
case("trace", lambda tf, x: tf.trace(x), x=floats(3, 4))
case("trace", lambda tf, x: tf.trace(x), "batch", x=floats(2, 3, 3))
case("matrix_diag", lambda tf, x: tf.matrix_diag(x), x=floats(2, 3))
case("matrix_diag", lambda tf, x: tf.matrix_diag(x, name="named"), "named", x=floats(3))
case("matrix_diag_part", lambda tf, x: tf.matrix_diag_part(x), x=floats(2, 3, 4))
case("matrix_set_diag", lambda tf, x, d: tf.matrix_set_diag(x, d), x=floats(2, 3, 4), d=floats(2, 3))
for _lower_bands, _upper in ((0, 0), (1, -1), (-1, 0), (1, 1)):
    case(
        "matrix_band_part",
        lambda tf, x, a=_lower_bands, b=_upper: tf.matrix_band_part(x, a, b),
        "%d,%d" % (_lower_bands, _upper),
        x=floats(2, 4, 4),
    )
case("linalg.tensor_diag", lambda tf, x: tf.linalg.tensor_diag(x), x=floats(3))
case("linalg.l2_normalize", lambda tf, x: tf.linalg.l2_normalize(x, 1), x=floats(3, 4))
