"""Strings."""

import numpy as np

from .case import case, floats, ints

_words = np.array([b"ab", b"Cde", b""], dtype=object)
case("string_join", lambda tf, x, y: tf.string_join([x, y], separator="-"), x=_words, y=_words[::-1].copy())
case("string_join", lambda tf, x: tf.string_join(["a", x]), "broadcast", x=_words)
case("strings.join", lambda tf, x: tf.strings.join([x, x]), x=_words)
case("as_string", lambda tf, x: tf.as_string(x), x=ints(3, low=-9))
case("as_string", lambda tf, x: tf.as_string(x), "float", x=floats(3))
case("as_string", lambda tf, x: tf.as_string(x, precision=2), "precision", x=floats(3))
case("as_string", lambda tf, x: tf.as_string(x, width=6, fill="0"), "width", x=ints(3))
case("as_string", lambda tf, x: tf.as_string(x, scientific=True, precision=3), "scientific", x=floats(3))
case("as_string", lambda tf, x: tf.as_string(x, shortest=True), "shortest", x=floats(3))
case("as_string", lambda tf, x: tf.as_string(x), "bool", x=np.array([True, False]))
case("string_to_number", lambda tf, x: tf.string_to_number(x), x=np.array([b"1.5", b"-3"], dtype=object))
case(
    "string_to_number",
    lambda tf, x: tf.string_to_number(x, out_type=tf.int32),
    "int32",
    x=np.array([b"15", b"-3"], dtype=object),
)
case("string_split", lambda tf, x: tf.string_split(x), x=np.array([b"a b c", b"de"], dtype=object), shapes=False)
case(
    "string_split",
    lambda tf, x: tf.string_split(x, delimiter=","),
    "delimiter",
    x=np.array([b"a,b,,c", b"de"], dtype=object),
    shapes=False,
)
case(
    "string_split",
    lambda tf, x: tf.string_split(x, "").values,
    "letters",
    x=np.array([b"abc"], dtype=object),
    shapes=False,
)
case("string_strip", lambda tf, x: tf.string_strip(x), x=np.array([b" a ", b"b\n"], dtype=object))
case("substr", lambda tf, x: tf.substr(x, 1, 2), x=np.array([b"hello", b"worlds"], dtype=object))
case("substr", lambda tf, x: tf.substr(x, -3, 2), "negative", x=np.array([b"hello", b"worlds"], dtype=object))
case("substr", lambda tf, x: tf.substr(x, [1, 2], [2, 1]), "each", x=np.array([b"hello", b"worlds"], dtype=object))
case(
    "regex_replace", lambda tf, x: tf.regex_replace(x, "[aeiou]", "_"), x=np.array([b"hello", b"worlds"], dtype=object)
)
case(
    "regex_replace",
    lambda tf, x: tf.regex_replace(x, "(o)", "<\\1>", replace_global=False),
    "first",
    x=np.array([b"hello", b"oo"], dtype=object),
)
case(
    "strings.regex_full_match",
    lambda tf, x: tf.strings.regex_full_match(x, "[a-z]+"),
    x=np.array([b"hello", b"W"], dtype=object),
)
case("strings.length", lambda tf, x: tf.strings.length(x), x=_words)
case("strings.lower", lambda tf, x: tf.strings.lower(x), x=_words)
case("strings.upper", lambda tf, x: tf.strings.upper(x), x=_words)
case("reduce_join", lambda tf, x: tf.reduce_join(x, 0), x=_words)
case(
    "reduce_join",
    lambda tf, x: tf.reduce_join(x, axis=1, separator="+"),
    "axis",
    x=np.array([[b"a", b"b"], [b"c", b"d"]], dtype=object),
)
case(
    "reduce_join",
    lambda tf, x: tf.reduce_join(x, reduction_indices=[0], keep_dims=True),
    "old",
    x=np.array([[b"a", b"b"], [b"c", b"d"]], dtype=object),
)
case("decode_raw", lambda tf, x: tf.decode_raw(x, tf.uint8), x=np.array([b"abc", b"def"], dtype=object))
case(
    "decode_raw",
    lambda tf, x: tf.decode_raw(x, tf.float32),
    "float32",
    x=np.array([np.arange(3, dtype="float32").tobytes() + b""], dtype=object),
)
case(
    "decode_csv", lambda tf, x: tf.decode_csv(x, [[1], [2.0], ["c"]]), x=np.array([b"4,5.5,abc", b"7,,x"], dtype=object)
)
case("encode_base64", lambda tf, x: tf.encode_base64(x), x=_words)
case("decode_base64", lambda tf, x: tf.decode_base64(tf.encode_base64(x)), x=_words)
case("equal", lambda tf, x: tf.equal(x, "ab"), "string", x=_words)
case("not_equal", lambda tf, x: tf.not_equal(x, ["ab", "b", ""]), "string", x=_words)
case("gather", lambda tf, x: tf.gather(x, [2, 0]), "string", x=_words)
case("reshape", lambda tf, x: tf.reshape(x, [3, 1]), "string", x=_words)
case("concat", lambda tf, x: tf.concat([x, ["zz"]], 0), "string", x=_words)
case("stack", lambda tf, x: tf.stack([x, x]), "string", x=_words)
case("unstack", lambda tf, x: tf.unstack(x), "string", x=_words)
case("identity", lambda tf, x: tf.identity(x), "string", x=_words)
case("expand_dims", lambda tf, x: tf.expand_dims(x, 1), "string", x=_words)
case("Tensor.__getitem__", lambda tf, x: x[1], "string", x=_words)
case("shape", lambda tf, x: tf.shape(x), "string", x=_words)
case(
    "strings.unsorted_segment_join",
    lambda tf, x: tf.strings.unsorted_segment_join(x, [1, 0, 1], 2, separator=","),
    x=_words,
)
