"""A small writer of LLVM assembly: values with their types, blocks, counted loops."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

SIZES = {"float": 4, "double": 8, "i64": 8, "i32": 4, "i8": 1}
_SUFFIXES = {"float": "f32", "double": "f64", "ptr": "p0"}


@dataclass(frozen=True)
class LlvmValue:
    """A value of LLVM assembly: its type, and its name or literal."""

    type: str
    text: str

    def __str__(self) -> str:
        return f"{self.type} {self.text}"

    @property
    def element(self) -> str:
        """The type of one lane."""
        return element_of(self.type)

    @property
    def lanes(self) -> int:
        return lanes_of(self.type)


def vector(lanes: int, element: str) -> str:
    """The type of `lanes` elements."""
    return f"<{lanes} x {element}>"


def element_of(kind: str) -> str:
    return kind[1:-1].partition(" x ")[2] if kind.startswith("<") else kind


def lanes_of(kind: str) -> int:
    return int(kind[1:-1].partition(" x ")[0]) if kind.startswith("<") else 1


def literal(element: str, number: float) -> str:
    """One number as LLVM writes it; floating point exactly, as the bits of a double."""
    if element == "float":
        number = _round_to_float(float(number))
    if element in {"float", "double"}:
        return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"
    return str(int(number))


def _round_to_float(number: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


def constant(kind: str, number: float) -> LlvmValue:
    """The same number in every lane of type `kind`."""
    text = literal(element_of(kind), number)
    if kind.startswith("<"):
        text = f"splat ({element_of(kind)} {text})"
    return LlvmValue(kind, text)


def integer(number: int) -> LlvmValue:
    return LlvmValue("i64", str(number))


def suffix(kind: str) -> str:
    """How the name of an intrinsic spells a type."""
    element = _SUFFIXES.get(element_of(kind), element_of(kind))
    return f"v{lanes_of(kind)}{element}" if kind.startswith("<") else element


class Counter:
    """A counted loop under construction; `index` is the loop's variable."""

    def __init__(self, index: LlvmValue) -> None:
        self.index = index
        self.fed: dict[str, LlvmValue] = {}
        self.results: list[LlvmValue] = []
        """After the loop: what its last iteration has handed on."""

    def feed(self, phi: LlvmValue, following: LlvmValue) -> None:
        """What `phi` holds in the next iteration."""
        self.fed[phi.text] = following


class Builder:
    """Writes one function, instruction by instruction."""

    def __init__(self, name: str, parameters: Sequence[tuple[str, str]], *, linkage: str = "") -> None:
        self.parameters = {key: LlvmValue(kind.split()[0], f"%{key}") for key, kind in parameters}
        self.declarations: dict[str, str] = {}
        self._head = f"define {linkage}void @{name}({', '.join(f'{kind} %{key}' for key, kind in parameters)})"
        self._lines: list[str] = ["entry:"]
        self._block = "entry"
        self._fresh = 0

    def text(self) -> str:
        """The finished function."""
        return "\n".join([f"{self._head} #0 {{", *self._lines, "  ret void", "}"])

    def void(self, instruction: str) -> None:
        self._lines.append(f"  {instruction}")

    def let(self, kind: str, instruction: str) -> LlvmValue:
        """The result, of type `kind`, of an instruction."""
        value = LlvmValue(kind, self._name())
        self._lines.append(f"  {value.text} = {instruction}")
        return value

    def _name(self) -> str:
        self._fresh += 1
        return f"%v{self._fresh}"

    def binary(self, operation: str, left: LlvmValue, right: LlvmValue) -> LlvmValue:
        return self.let(left.type, f"{operation} {left}, {right.text}")

    def compare(self, predicate: str, left: LlvmValue, right: LlvmValue) -> LlvmValue:
        """`fcmp` or `icmp`, by the type of the operands."""
        word = "fcmp" if left.element in {"float", "double"} else "icmp"
        truth = vector(left.lanes, "i1") if left.type.startswith("<") else "i1"
        return self.let(truth, f"{word} {predicate} {left}, {right.text}")

    def negated(self, truth: LlvmValue) -> LlvmValue:
        return self.binary("xor", truth, LlvmValue("i1", "true"))

    def select(self, truth: LlvmValue, left: LlvmValue, right: LlvmValue) -> LlvmValue:
        return self.let(left.type, f"select {truth}, {left}, {right}")

    def convert(self, operation: str, value: LlvmValue, element: str) -> LlvmValue:
        kind = vector(value.lanes, element) if value.type.startswith("<") else element
        return self.let(kind, f"{operation} {value} to {kind}")

    def intrinsic(self, name: str, *arguments: LlvmValue) -> LlvmValue:
        """Call `llvm.<name>`, overloaded on the type of its first argument, which is also the type of the result."""
        kind = arguments[0].type
        function = f"@llvm.{name}.{suffix(kind)}"
        self.declarations[function] = f"declare {kind} {function}({', '.join(arg.type for arg in arguments)})"
        return self.let(kind, f"call {kind} {function}({', '.join(map(str, arguments))})")

    def fma(self, left: LlvmValue, right: LlvmValue, addend: LlvmValue) -> LlvmValue:
        """`left * right + addend`, rounded once where the machine can."""
        return self.intrinsic("fmuladd", left, right, addend)

    def scalar_call(self, function: str, value: LlvmValue) -> LlvmValue:
        """Call a function of the C library lane by lane."""
        element = value.element
        self.declarations[f"@{function}"] = f"declare {element} @{function}({element}) nounwind"
        result = LlvmValue(value.type, "poison")
        for lane in range(value.lanes):
            one = self.let(element, f"extractelement {value}, i64 {lane}")
            one = self.let(element, f"call {element} @{function}({one})")
            result = self.let(value.type, f"insertelement {result}, {one}, i64 {lane}")
        return result

    def shuffle(self, left: LlvmValue, right: LlvmValue, lanes: Sequence[int]) -> LlvmValue:
        kind = vector(len(lanes), left.element)
        mask = ", ".join(f"i32 {lane}" for lane in lanes)
        return self.let(kind, f"shufflevector {left}, {right}, <{len(lanes)} x i32> <{mask}>")

    def splat(self, scalar: LlvmValue, lanes: int) -> LlvmValue:
        """A scalar, or a vector of one lane, in every lane."""
        kind = vector(lanes, scalar.element)
        if not scalar.type.startswith("<"):
            scalar = self.let(vector(1, scalar.type), f"insertelement <1 x {scalar.type}> poison, {scalar}, i64 0")
        return (
            scalar
            if lanes == 1
            else self.let(kind, f"shufflevector {scalar}, {scalar.type} poison, <{lanes} x i32> zeroinitializer")
        )

    def advance(self, pointer: LlvmValue, count: LlvmValue | int, size: int = 1) -> LlvmValue:
        """The address `count` elements of `size` bytes further on."""
        if isinstance(count, int):
            return pointer if count == 0 else self.let("ptr", f"getelementptr i8, {pointer}, i64 {count * size}")
        offset = count if size == 1 else self.binary("mul", count, integer(size))
        return self.let("ptr", f"getelementptr i8, {pointer}, {offset}")

    def load(self, kind: str, pointer: LlvmValue, align: int | None = None) -> LlvmValue:
        return self.let(kind, f"load {kind}, {pointer}, align {align or SIZES.get(element_of(kind), 8)}")

    def store(self, value: LlvmValue, pointer: LlvmValue, align: int | None = None) -> None:
        self.void(f"store {value}, {pointer}, align {align or SIZES.get(value.element, 8)}")

    def prefetch(self, pointer: LlvmValue, *, near: bool) -> None:
        """Ask for a cache line: in the nearest cache, or in one that is large enough for many."""
        self.declarations["prefetch"] = "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"
        self.void(f"call void @llvm.prefetch.p0({pointer}, i32 0, i32 {3 if near else 2}, i32 1)")

    def arguments(self, frame: LlvmValue, names: Sequence[str], pointers: frozenset[str]) -> dict[str, LlvmValue]:
        """What a frame holds: one 64-bit number or address for each name."""
        return {
            name: self.load("ptr" if name in pointers else "i64", self.advance(frame, place, 8))
            for place, name in enumerate(names)
        }

    def _open(self, label: str) -> None:
        self._lines.append(f"{label}:")
        self._block = label

    def jump(self, label: str) -> None:
        self.void(f"br label %{label}")

    def label(self, stem: str) -> str:
        self._fresh += 1
        return f"{stem}{self._fresh}"

    @contextmanager
    def when(self, truth: LlvmValue) -> Iterator[None]:
        """What is written inside runs only if `truth`."""
        inside, after = self.label("then"), self.label("after")
        self.void(f"br {truth}, label %{inside}, label %{after}")
        self._open(inside)
        yield
        self.jump(after)
        self._open(after)

    def leave_if(self, truth: LlvmValue) -> None:
        """Return from the function if `truth`."""
        inside, after = self.label("leave"), self.label("after")
        self.void(f"br {truth}, label %{inside}, label %{after}")
        self._open(inside)
        self.void("ret void")
        self._open(after)

    @contextmanager
    def loop(
        self,
        stop: LlvmValue,
        step: int | LlvmValue = 1,
        *,
        carry: Sequence[LlvmValue] = (),
        stem: str = "loop",
        may_be_none: bool = False,
    ) -> Iterator[tuple[Counter, list[LlvmValue]]]:
        """What is written inside runs for 0, step, 2 step… below `stop`, and at least once unless it `may_be_none`.

        `carry` are the first values of what one iteration hands to the next; `feed` says what that is.
        """
        head, after, before = self.label(stem), self.label("after"), self._block
        if may_be_none:
            self.void(f"br {self.compare('sgt', stop, integer(0))}, label %{head}, label %{after}")
        else:
            self.jump(head)
        self._open(head)
        place = len(self._lines)
        counter = Counter(LlvmValue("i64", self._name()))
        phis = [LlvmValue(first.type, self._name()) for first in carry]
        yield counter, phis
        step = integer(step) if isinstance(step, int) else step
        following = self.let("i64", f"add nuw nsw {counter.index}, {step.text}")
        truth = self.compare("slt", following, stop)
        latch = self._block
        self.void(f"br {truth}, label %{head}, label %{after}")
        sources = [(counter.index, integer(0), following)]
        sources += [(phi, first, counter.fed[phi.text]) for phi, first in zip(phis, carry, strict=True)]
        self._lines[place:place] = [
            f"  {phi.text} = phi {phi.type} [ {first.text}, %{before} ], [ {last.text}, %{latch} ]"
            for phi, first, last in sources
        ]
        self._open(after)
        counter.results = [last for _, _, last in sources[1:]]
        if may_be_none:
            ends = [(phi.type, first, last) for phi, first, last in sources[1:]]
            counter.results = [
                self.let(kind, f"phi {kind} [ {first.text}, %{before} ], [ {last.text}, %{latch} ]")
                for kind, first, last in ends
            ]


def module(functions: Sequence[Builder], *, globals_: Sequence[str] = ()) -> str:
    """The functions as one module of LLVM assembly."""
    declared = {key: line for function in functions for key, line in function.declarations.items()}
    parts = [*globals_, *(function.text() for function in functions), *(declared[key] for key in sorted(declared))]
    return "\n\n".join([*parts, "attributes #0 = { nounwind }", ""])
