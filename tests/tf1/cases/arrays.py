"""Making, shaping, joining and splitting tensors."""

import numpy as np

from .case import case, floats, ints

# Making tensors.
for _label, _value, _keywords in (
    ("number", 3, {}),
    ("float", 2.5, {}),
    ("list", [1, 2, 3], {}),
    ("nested", [[1.0, 2.0], [3.0, 4.0]], {}),
    ("bool", [True, False], {}),
    ("dtype", [1, 2], {"dtype": "float32"}),
    ("shape", 7.0, {"shape": [2, 3]}),
    ("name", 1, {"name": "named"}),
    ("array", np.arange(4, dtype="float64"), {}),
    ("int64", np.arange(3), {}),
    ("text", "abc", {}),
    ("texts", ["a", "bc"], {}),
    ("tail", [1, 2], {"shape": [4]}),
    ("empty", [], {}),
):
    case("constant", lambda tf, v=_value, k=_keywords: tf.constant(v, **k), _label)
for _name, _args in (("zeros", {}), ("ones", {})):
    case(_name, lambda tf, f=_name: getattr(tf, f)([2, 3]), "list")
    case(_name, lambda tf, f=_name: getattr(tf, f)((2,), dtype=tf.int32), "int32")
    case(_name, lambda tf, f=_name: getattr(tf, f)([]), "scalar")
    case(_name, lambda tf, f=_name: getattr(tf, f)([2], tf.bool, name="named"), "bool")
    case(_name, lambda tf, x, f=_name: getattr(tf, f)(tf.shape(x)), "dynamic", x=floats(2, 3))
    case(_name, lambda tf, x, f=_name: getattr(tf, f)([tf.shape(x)[0], 4]), "partly_dynamic", x=floats(2, 3))
    case(_name, lambda tf, x, f=_name: getattr(tf, f)(tf.stack([tf.shape(x)[0], 5])), "stacked", x=floats(2, 3))
case("fill", lambda tf: tf.fill([2, 3], 7.0))
case("fill", lambda tf, v: tf.fill([2], v), "tensor", v=floats())
case("fill", lambda tf, x: tf.fill([tf.shape(x)[0], 2], 1), "dynamic", x=floats(3, 2))
case("fill", lambda tf, x: tf.fill(tf.shape(x), True), "bool", x=floats(3, 2))
for _label, _args, _keywords in (
    ("limit", (5,), {}),
    ("start", (2, 6), {}),
    ("step", (1, 10, 3), {}),
    ("float", (0.0, 1.0, 0.25), {}),
    ("down", (5, 0, -2), {}),
    ("dtype", (4,), {"dtype": "int64"}),
    ("keywords", (), {"start": 1, "limit": 4, "delta": 1}),
    ("named", (3,), {"name": "named"}),
):
    case("range", lambda tf, a=_args, k=_keywords: tf.range(*a, **k), _label)
case("range", lambda tf, x: tf.range(tf.shape(x)[0]), "dynamic", x=floats(3, 2))
case("range", lambda tf, x: tf.range(0, tf.shape(x)[0]) * 2, "dynamic_start", x=floats(3, 2))
for _name in ("linspace", "lin_space"):
    case(_name, lambda tf, f=_name: getattr(tf, f)(0.0, 1.0, 5))
    case(_name, lambda tf, f=_name: getattr(tf, f)(-1.0, 1.0, num=4, name="named"), "named")
case("eye", lambda tf: tf.eye(3))
case("eye", lambda tf: tf.eye(2, 3, dtype=tf.int32), "columns")
case("eye", lambda tf: tf.eye(2, batch_shape=[3]), "batch")
case("eye", lambda tf, x: tf.eye(tf.shape(x)[0]), "dynamic", x=floats(3, 2))
case("one_hot", lambda tf, i: tf.one_hot(i, 4), i=ints(3, below=4))
case(
    "one_hot",
    lambda tf, i: tf.one_hot(i, depth=3, on_value=5.0, off_value=-1.0),
    "values",
    i=ints(2, 3, low=-1, below=4),
)
case("one_hot", lambda tf, i: tf.one_hot(i, 3, axis=0), "axis", i=ints(2, 4, below=3))
case("one_hot", lambda tf, i: tf.one_hot(i, 3, dtype=tf.int32), "int32", i=ints(4, below=3))
case(
    "one_hot", lambda tf, i: tf.one_hot(i, 3, on_value=True, off_value=False), "bool", i=ints(4, below=3, dtype="int64")
)
case("one_hot", lambda tf, i: tf.one_hot(i, 4, 1.0, 0.0, -1), "positional", i=ints(3, below=4))
case("sequence_mask", lambda tf, n: tf.sequence_mask(n, 5), n=ints(4, below=6))
case("sequence_mask", lambda tf, n: tf.sequence_mask(n), "longest", n=np.array([1, 3, 2], "int32"))
case("sequence_mask", lambda tf, n: tf.sequence_mask(n, maxlen=4, dtype=tf.float32), "float32", n=ints(2, 3))
case(
    "sequence_mask", lambda tf, n, x: tf.sequence_mask(n, tf.shape(x)[1]), "dynamic", n=ints(3, below=4), x=floats(3, 4)
)

# Shapes.
for _name in ("shape", "size", "rank"):
    case(_name, lambda tf, x, f=_name: getattr(tf, f)(x), x=floats(2, 3))
    case(_name, lambda tf, x, f=_name: getattr(tf, f)(x, name="named"), "named", x=floats(4))
    case(_name, lambda tf, x, f=_name: getattr(tf, f)(x), "scalar", x=floats())
case("shape", lambda tf, x: tf.shape(x, out_type=tf.int64), "int64", x=floats(2, 3))
case("size", lambda tf, x: tf.size(x, out_type=tf.int64), "int64", x=floats(2, 3))
case("shape", lambda tf: tf.shape([[1, 2, 3]]), "of_list")
case("shape_n", lambda tf, x, y: tf.shape_n([x, y]), x=floats(2, 3), y=floats(4))
case(
    "broadcast_dynamic_shape",
    lambda tf, x, y: tf.broadcast_dynamic_shape(tf.shape(x), tf.shape(y)),
    x=floats(2, 1),
    y=floats(3),
)
case("broadcast_to", lambda tf, x: tf.broadcast_to(x, [2, 3]), x=floats(3))
case("broadcast_to", lambda tf, x, y: tf.broadcast_to(x, tf.shape(y)), "dynamic", x=floats(1, 3), y=floats(2, 3))
case("ensure_shape", lambda tf, x: tf.ensure_shape(x, [None, 3]), x=floats(2, 3))
for _label, _shape in {"flat": [-1], "rows": [-1, 2], "three": [2, 1, 6], "same": [3, 4], "tuple": (4, 3)}.items():
    case("reshape", lambda tf, x, s=_shape: tf.reshape(x, s), _label, x=floats(3, 4))
case("reshape", lambda tf, x: tf.reshape(x, []), "scalar", x=floats(1, 1))
case("reshape", lambda tf, x: tf.reshape(x, [tf.shape(x)[0], -1]), "dynamic", x=floats(2, 3, 4))
case("reshape", lambda tf, x: tf.reshape(x, [-1, tf.shape(x)[2]]), "dynamic_last", x=floats(2, 3, 4))
case("reshape", lambda tf, x, y: tf.reshape(x, tf.shape(y)), "like", x=floats(2, 3), y=floats(3, 2))
case(
    "reshape", lambda tf, x: tf.reshape(x, tf.stack([tf.shape(x)[0] * tf.shape(x)[1], 4])), "stacked", x=floats(2, 3, 4)
)
case(
    "reshape",
    lambda tf, x: tf.reshape(tensor=x, shape=tf.concat([tf.shape(x)[:1], [4, 3]], 0), name="named"),
    "named",
    x=floats(2, 3, 4),
)
for _label, _keywords in {
    "plain": {},
    "perm": {"perm": [1, 0, 2]},
    "rotate": {"perm": (2, 0, 1)},
    "named": {"name": "named"},
}.items():
    case("transpose", lambda tf, x, k=_keywords: tf.transpose(x, **k), _label, x=floats(2, 3, 4))
case("transpose", lambda tf, x: tf.transpose(x, [1, 0]), "matrix", x=floats(2, 3))
case("transpose", lambda tf, x, p: tf.transpose(x, p), "tensor", x=floats(2, 3), p=np.array([1, 0], "int32"))
case("matrix_transpose", lambda tf, x: tf.matrix_transpose(x), x=floats(2, 3, 4))
for _label, _keywords in {
    "first": {"axis": 0},
    "last": {"axis": -1},
    "old": {"dim": 1},
    "named": {"axis": 1, "name": "named"},
}.items():
    case("expand_dims", lambda tf, x, k=_keywords: tf.expand_dims(x, **k), _label, x=floats(2, 3))
case("expand_dims", lambda tf, x: tf.expand_dims(x, 0), "scalar", x=floats())
for _label, _keywords in {
    "all": {},
    "axis": {"axis": [0]},
    "number": {"axis": 2},
    "old": {"squeeze_dims": [2]},
    "negative": {"axis": [-1]},
}.items():
    case("squeeze", lambda tf, x, k=_keywords: tf.squeeze(x, **k), _label, x=floats(1, 3, 1))
for _label, _multiples in {"rows": [2, 1], "both": [2, 3], "ones": [1, 1]}.items():
    case("tile", lambda tf, x, m=_multiples: tf.tile(x, m), _label, x=floats(2, 3))
case("tile", lambda tf, x, y: tf.tile(x, [tf.shape(y)[0], 1]), "dynamic", x=floats(1, 3), y=floats(4, 2))
case("tile", lambda tf, x: tf.tile(input=x, multiples=[2], name="named"), "named", x=ints(3))
for _label, _args in {"all": (2,), "axis": (2, 1), "each": ([1, 2], 0)}.items():
    case(
        "repeat",
        lambda tf, x, a=_args: tf.repeat(x, *a[:1], **({"axis": a[1]} if len(a) > 1 else {})),
        _label,
        x=floats(2, 3),
    )

# Joining and splitting.
for _axis in (0, 1, -1):
    case(
        "concat",
        lambda tf, x, y, a=_axis: tf.concat([x, y], a),
        "axis_%d" % _axis,
        x=floats(2, 3),
        y=floats(2, 3, salt=1),
    )
case("concat", lambda tf, x, y: tf.concat(values=[x, y], axis=1, name="named"), "named", x=floats(2, 3), y=floats(2, 1))
case("concat", lambda tf, x: tf.concat([x], 0), "one", x=floats(2, 3))
case("concat", lambda tf, x: tf.concat([x, [[1.0, 2.0, 3.0]]], 0), "list", x=floats(2, 3))
case("concat", lambda tf, x, y: tf.concat([x, y], 0), "different_rows", x=floats(2, 3), y=floats(4, 3))
case("concat", lambda tf, x: tf.concat((x, x, x), axis=-1), "tuple", x=floats(2, 3))
for _axis in (0, 1, 2, -1):
    case(
        "stack",
        lambda tf, x, y, a=_axis: tf.stack([x, y], axis=a),
        "axis_%d" % _axis,
        x=floats(2, 3),
        y=floats(2, 3, salt=1),
    )
case("stack", lambda tf: tf.stack([1, 2, 3]), "numbers")
case("stack", lambda tf, x: tf.stack([x, 2.0, x], name="named"), "named", x=floats())
case("stack", lambda tf, x: tf.stack([tf.shape(x)[0], 3]), "shapes", x=floats(4, 2))
case(
    "parallel_stack",
    lambda tf, x, y: tf.parallel_stack([x, y]),
    x=floats(2, 3),
    y=floats(2, 3, salt=1),
    gradients=False,
    shapes=False,
)
for _label, _keywords in {
    "plain": {},
    "axis": {"axis": 1},
    "last": {"axis": -1},
    "num": {"num": 2},
    "named": {"name": "named"},
}.items():
    case("unstack", lambda tf, x, k=_keywords: tf.unstack(x, **k), _label, x=floats(2, 3))
for _label, _args in {
    "halves": (2,),
    "axis": (3, 1),
    "sizes": ([1, 3], 0),
    "sizes_axis": ([1, 2, 3], 1),
    "rest": ([1, -1], 1),
}.items():
    case("split", lambda tf, x, a=_args: tf.split(x, *a), _label, x=floats(4, 6))
case("split", lambda tf, x: tf.split(value=x, num_or_size_splits=2, axis=-1, name="named"), "named", x=floats(4, 6))
case("split", lambda tf, x: tf.split(x, 4, 1)[2], "item", x=floats(2, 8))
for _label, _args in {
    "plain": ([[1, 2], [0, 1]],),
    "reflect": ([[1, 1], [2, 1]], "REFLECT"),
    "symmetric": ([[1, 2], [2, 3]], "SYMMETRIC"),
    "lower": ([[1, 1], [2, 1]], "reflect"),
}.items():
    case("pad", lambda tf, x, a=_args: tf.pad(x, *a), _label, x=floats(2, 3))
case("pad", lambda tf, x: tf.pad(tensor=x, paddings=[[1, 0]], constant_values=7.0, name="named"), "named", x=floats(3))
case("pad", lambda tf, x, n: tf.pad(x, [[0, n], [0, 0]]), "dynamic", x=floats(2, 3), n=np.array(2, "int32"))
for _label, _axis in {"rows": [0], "both": [0, 1], "last": [-1]}.items():
    case("reverse", lambda tf, x, a=_axis: tf.reverse(x, a), _label, x=floats(2, 3))
case("reverse", lambda tf, x: tf.reverse(x, axis=[1], name="named"), "named", x=floats(2, 3))
case("reverse_v2", lambda tf, x: tf.reverse_v2(x, [0]), x=floats(2, 3))
for _label, _keywords in {
    "plain": {"seq_axis": 1, "batch_axis": 0},
    "old": {"seq_dim": 1, "batch_dim": 0},
    "default_batch": {"seq_axis": 1},
    "time_major": {"seq_axis": 0, "batch_axis": 1},
}.items():
    _n = np.array([2, 0, 4], "int32") if _label != "time_major" else np.array([1, 3, 2, 0], "int32")
    case(
        "reverse_sequence",
        lambda tf, x, n, k=_keywords: tf.reverse_sequence(x, n, **k),
        _label,
        x=floats(3, 4, 2),
        n=_n,
    )
case(
    "reverse_sequence",
    lambda tf, x, n: tf.reverse_sequence(x, n, 1, 0),
    "positional",
    x=ints(2, 5),
    n=np.array([2, 3], "int64"),
)
for _label, _args in {"one": (1, 0), "back": (-2, 1), "pair": ([1, 2], [0, 1])}.items():
    case("roll", lambda tf, x, a=_args: tf.roll(x, *a), _label, x=floats(3, 4))
case("meshgrid", lambda tf, x, y: tf.meshgrid(x, y), x=floats(2), y=floats(3))
case("meshgrid", lambda tf, x, y: tf.meshgrid(x, y, indexing="ij"), "ij", x=floats(2), y=floats(3))
case("meshgrid", lambda tf: tf.meshgrid(tf.range(2), tf.range(3)), "ranges")
for _name in ("space_to_depth", "depth_to_space"):
    case(_name, lambda tf, x, f=_name: getattr(tf, f)(x, 2), x=floats(1, 4, 4, 4))
case("space_to_batch_nd", lambda tf, x: tf.space_to_batch_nd(x, [2, 2], [[0, 0], [0, 0]]), x=floats(1, 4, 4, 2))
case("space_to_batch_nd", lambda tf, x: tf.space_to_batch_nd(x, [2], [[1, 0]]), "one", x=floats(2, 5, 3))
case("batch_to_space_nd", lambda tf, x: tf.batch_to_space_nd(x, [2, 2], [[0, 0], [0, 0]]), x=floats(4, 2, 2, 2))
case("batch_to_space_nd", lambda tf, x: tf.batch_to_space_nd(x, [2], [[1, 0]]), "crop", x=floats(4, 3, 3))
case("space_to_batch", lambda tf, x: tf.space_to_batch(x, [[0, 0], [0, 0]], 2), x=floats(1, 4, 4, 2))
case("batch_to_space", lambda tf, x: tf.batch_to_space(x, [[0, 0], [0, 0]], 2), x=floats(4, 2, 2, 2))
case("required_space_to_batch_paddings", lambda tf: tf.required_space_to_batch_paddings([5, 6], [2, 4]))
case("invert_permutation", lambda tf, x: tf.invert_permutation(x), x=np.array([2, 0, 3, 1], "int32"))
case("identity_n", lambda tf, x, y: tf.identity_n([x, y]), x=floats(2), y=ints(3))
case("tuple", lambda tf, x, y: tf.tuple([x, y]), x=floats(2), y=floats(3))
case("tuple", lambda tf, x: tf.tuple([x, None, x * 2]), "with_none", x=floats(2))
case("guarantee_const", lambda tf, x: tf.guarantee_const(x), x=floats(2), gradients=False)
case("convert_to_tensor", lambda tf: tf.convert_to_tensor([1.0, 2.0]))
case("convert_to_tensor", lambda tf, x: tf.convert_to_tensor([x, x]), "packed", x=floats(2))
case("convert_to_tensor", lambda tf: tf.convert_to_tensor([1, 2], dtype=tf.float32), "dtype")
case("convert_to_tensor", lambda tf: tf.convert_to_tensor(np.eye(2)), "array")
case("unravel_index", lambda tf, i: tf.unravel_index(i, [3, 4]), i=ints(5, below=12))
case("diag", lambda tf, x: tf.diag(x), x=floats(3))
case("diag", lambda tf, x: tf.diag(x), "matrix", x=floats(2, 3))
case("diag_part", lambda tf, x: tf.diag_part(x), x=floats(3, 3))
case("diag_part", lambda tf, x: tf.diag_part(x), "rank_4", x=floats(2, 3, 2, 3))
case("group", lambda tf, x: tf.group(x, tf.identity(x)), x=floats(3))
case("group", lambda tf, x: tf.group(x, name="named"), "named", x=floats(3))
case("no_op", lambda tf: tf.no_op())
case("no_op", lambda tf: tf.no_op(name="named"), "named")
case("Print", lambda tf, x: tf.Print(x, []), x=floats(3))
case("placeholder_with_default", lambda tf: tf.placeholder_with_default([1.0, 2.0], [2]))
case("placeholder_with_default", lambda tf: tf.placeholder_with_default(3, [], name="named"), "named")
case("placeholder_with_default", lambda tf: tf.placeholder_with_default([[1.0]], [None, 1]), "partly")
case("placeholder", lambda tf, x: x, x=floats(2, 3))
case("unique", lambda tf, x: tf.unique(x), x=ints(8))
case("unique", lambda tf, x: tf.unique(x, out_idx=tf.int64), "int64", x=ints(8))
case("unique_with_counts", lambda tf, x: tf.unique_with_counts(x), x=ints(8))
case("setdiff1d", lambda tf, x, y: tf.setdiff1d(x, y), x=ints(8), y=ints(2, salt=1))
case("bitcast", lambda tf, x: tf.bitcast(x, tf.uint8), "wider", x=ints(2, 3))
case("timestamp", lambda tf: tf.timestamp() > 1.0)
case("random_crop", lambda tf, x: tf.random_crop(x, [2, 2], seed=3), x=floats(4, 5), gradients=False)
# The static shape that TensorFlow finds is wrong: it has one axis too few.
case(
    "extract_volume_patches",
    lambda tf, x: tf.extract_volume_patches(x, [1, 2, 2, 2, 1], [1, 1, 1, 1, 1], "VALID"),
    x=floats(1, 3, 3, 3, 2),
    gradients=False,
    shapes=False,
)
