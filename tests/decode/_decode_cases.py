"""The cases that are recorded from TensorFlow and compared with ours."""

from __future__ import annotations

from typing import Any

ROWS, STEPS, INPUTS = 3, 4, 2
UNITS, DEPTH, MEMORY_STEPS = 5, 3, 6
TOKENS, EMBEDDED = 7, 4
LENGTHS = [6, 1, 4]


def _attention(
    *mechanisms: tuple[str, dict[str, Any]], layer: Any = 4, output_attention: bool = True, is_list: bool = False
) -> dict[str, Any]:
    return {"mechanisms": mechanisms, "layer": layer, "output_attention": output_attention, "is_list": is_list}


_BAHDANAU, _LUONG = ("BahdanauAttention", {}), ("LuongAttention", {})

ATTENTION: dict[str, dict[str, Any]] = {
    "bahdanau": _attention(_BAHDANAU),
    "bahdanau normalised": _attention(("BahdanauAttention", {"normalize": True})),
    "luong": _attention(_LUONG),
    "luong scaled": _attention(("LuongAttention", {"scale": True})),
    "no layer": _attention(_LUONG, layer=None),
    "output of the cell": _attention(_BAHDANAU, output_attention=False),
    "bahdanau monotonic": _attention(("BahdanauMonotonicAttention", {})),
    "bahdanau monotonic normalised": _attention(("BahdanauMonotonicAttention", {"normalize": True})),
    "bahdanau monotonic recursive": _attention(("BahdanauMonotonicAttention", {"mode": "recursive"})),
    "bahdanau monotonic hard": _attention(("BahdanauMonotonicAttention", {"mode": "hard"})),
    "luong monotonic": _attention(("LuongMonotonicAttention", {})),
    "luong monotonic scaled": _attention(("LuongMonotonicAttention", {"scale": True})),
    "luong monotonic hard": _attention(("LuongMonotonicAttention", {"mode": "hard"})),
    "two": _attention(_BAHDANAU, _LUONG, layer=[3, 4], is_list=True),
    "two without layers": _attention(_BAHDANAU, _LUONG, layer=None, is_list=True),
    "list of one": _attention(_BAHDANAU, layer=[3], is_list=True),
}


def _beam(width: int, length: float = 0.0, coverage: float = 0.0, attends: bool = False) -> dict[str, Any]:
    return {"width": width, "length": length, "coverage": coverage, "attends": attends}


BEAM: dict[str, dict[str, Any]] = {
    "one": _beam(1),
    "three": _beam(3),
    "more than tokens": _beam(9),
    "length penalty": _beam(3, length=0.8),
    "reward for brevity": _beam(3, length=-0.5),
    "attention": _beam(3, attends=True),
    "coverage": _beam(4, coverage=0.3, attends=True),
    "length and coverage": _beam(4, length=0.6, coverage=0.2, attends=True),
}

# Name, steps, width of the beam, and the length of each row.
TREES = [("one row", 5, 3, [5]), ("three rows", 6, 4, [6, 2, 4]), ("narrow", 4, 1, [4, 3])]

# Width of the beam, tokens, which beams have ended, and the weight of the length penalty.
BEAM_STEPS: dict[str, tuple[int, int, list[list[bool]], float]] = {
    "running": (3, 5, [[False] * 3] * 2, 0.0),
    "one has ended": (3, 5, [[False, True, False], [True, False, False]], 0.0),
    "all have ended": (3, 5, [[True] * 3] * 2, 0.0),
    "more beams than tokens": (8, 5, [[False] * 8, [False] * 4 + [True] * 4], 0.0),
    "length penalty": (3, 5, [[False, True, False], [True, False, False]], 0.6),
}
