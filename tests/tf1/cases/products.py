"""Products of matrices and tensors."""

from .case import case, floats, ints

for _label, _a, _b, _keywords in (
    ("plain", (2, 3), (3, 4), {}),
    ("transpose_a", (3, 2), (3, 4), {"transpose_a": True}),
    ("transpose_b", (2, 3), (4, 3), {"transpose_b": True}),
    ("both", (3, 2), (4, 3), {"transpose_a": True, "transpose_b": True}),
    ("adjoint_b", (2, 3), (4, 3), {"adjoint_b": True}),
    ("adjoint_a", (3, 2), (3, 4), {"adjoint_a": True}),
    ("batch", (5, 2, 3), (5, 3, 4), {}),
    ("batch_b", (5, 2, 3), (5, 4, 3), {"transpose_b": True}),
    ("batch_broadcast", (5, 2, 3), (3, 4), {}),
    ("sparse", (2, 3), (3, 4), {"a_is_sparse": True}),
    ("named", (2, 3), (3, 4), {"name": "named"}),
    ("rank_4", (2, 1, 2, 3), (2, 2, 3, 2), {}),
    ("vector_as_matrix", (1, 3), (3, 1), {}),
):
    case(
        "matmul",
        lambda tf, a, b, k=_keywords: tf.matmul(a, b, **k),
        _label,
        a=floats(*_a),
        b=floats(*_b, salt=1),
        shapes=_label != "sparse",
    )
case("matmul", lambda tf, a: tf.matmul(a, [[1.0], [2.0], [3.0]]), "list", a=floats(2, 3))
case("matmul", lambda tf, a, b: tf.matmul(a=a, b=b), "keywords", a=floats(2, 3), b=floats(3, 2))
case("matmul", lambda tf, a, b: tf.matmul(a, b), "int32", a=ints(2, 3), b=ints(3, 2))
case(
    "matmul",
    lambda tf, a, b: tf.matmul(a, b),
    "float64",
    a=floats(2, 3, dtype="float64"),
    b=floats(3, 2, dtype="float64"),
)
case("linalg.matvec", lambda tf, a, b: tf.linalg.matvec(a, b), a=floats(2, 3), b=floats(3))
case(
    "linalg.matvec", lambda tf, a, b: tf.linalg.matvec(a, b, transpose_a=True), "transpose", a=floats(3, 2), b=floats(3)
)
case("sparse_matmul", lambda tf, a, b: tf.sparse_matmul(a, b, transpose_b=True), a=floats(2, 3), b=floats(4, 3))
for _label, _axes, _a, _b in (
    ("one", 1, (2, 3), (3, 4)),
    ("two", 2, (2, 3, 4), (3, 4, 5)),
    ("pairs", [[1], [0]], (2, 3), (3, 4)),
    ("zero", 0, (2,), (3,)),
    ("many", [[2, 1], [0, 2]], (2, 3, 4), (4, 5, 3)),
    ("numbers", (2, 0), (2, 3, 4), (4, 5)),
    ("last", [[2], [0]], (2, 3, 4), (4, 5)),
):
    case("tensordot", lambda tf, a, b, x=_axes: tf.tensordot(a, b, x), _label, a=floats(*_a), b=floats(*_b, salt=1))
for _equation, _a, _b in (
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("bij,bjk->bik", (5, 2, 3), (5, 3, 4)),
    ("ij,ij->", (2, 3), (2, 3)),
    ("i,j->ij", (2,), (3,)),
    ("ij,jk", (2, 3), (3, 4)),
    ("bij,jk->bik", (5, 2, 3), (3, 4)),
    ("ijk,ilm,njm->nlk", (2, 3, 4), (2, 5, 6)),
):
    if "," in _equation and _equation.count(",") == 1:
        case(
            "einsum", lambda tf, a, b, e=_equation: tf.einsum(e, a, b), _equation, a=floats(*_a), b=floats(*_b, salt=1)
        )
case("einsum", lambda tf, a: tf.einsum("ij->ji", a), "transpose", a=floats(2, 3))
case("einsum", lambda tf, a: tf.einsum("bij->bi", a), "sum", a=floats(2, 3, 4))
case("einsum", lambda tf, a, b: tf.einsum("ij,jk->ik", a, b, name="named"), "named", a=floats(2, 3), b=floats(3, 4))
case("cross", lambda tf, a, b: tf.cross(a, b), a=floats(2, 3), b=floats(2, 3, salt=1))
case("nn.xw_plus_b", lambda tf, x, w, b: tf.nn.xw_plus_b(x, w, b), x=floats(2, 3), w=floats(3, 4), b=floats(4))
case("nn.relu_layer", lambda tf, x, w, b: tf.nn.relu_layer(x, w, b), x=floats(2, 3), w=floats(3, 4), b=floats(4))
