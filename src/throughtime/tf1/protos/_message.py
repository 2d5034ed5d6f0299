"""Messages: records with TensorFlow's fields, in the form of the classes that protocol buffers generate.

A message class is a table of fields. Reading, writing, text, presence and oneofs follow from the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, Self

from throughtime._errors import problem
from throughtime.interop.checkpoints._protobuf import read_varint
from throughtime.tf1.protos._containers import MessageMap, RepeatedMessages, RepeatedScalars
from throughtime.tf1.protos._wire import DELIMITED, SCALARS, delimited, key_of, read_value, unpacked


class Field(NamedTuple):
    """A field: its number, its kind (a scalar's name or a message class), and how often it may be there."""

    number: int
    kind: str | type[Message]
    repeated: bool = False
    oneof: str = ""
    # The kind of the keys of a map; the field is a map if there is one.
    keys: str = ""

    @property
    def is_message(self) -> bool:
        """Whether the field holds messages."""
        return not isinstance(self.kind, str)


class Message:
    """A record with the fields of `FIELDS`; unknown names are refused.

    >>> from throughtime.tf1.protos import Summary
    >>> summary = Summary()
    >>> value = summary.value.add(tag="loss", simple_value=0.5)
    >>> Summary.FromString(summary.SerializeToString()).value[0].simple_value
    0.5
    """

    FIELDS: ClassVar[Mapping[str, Field]] = {}
    _values: dict[str, Any]
    _present: bool

    def __init__(self, **values: Any) -> None:
        object.__setattr__(self, "_values", {})
        object.__setattr__(self, "_present", False)
        for name, value in values.items():
            if value is not None:
                self._fill(name, value)

    def _field(self, name: str) -> Field:
        try:
            return self.FIELDS[name]
        except KeyError:
            fix = "Check the spelling."
            expected = f"one of {', '.join(self.FIELDS)}"
            what = f"{type(self).__name__} has no such field"
            raise AttributeError(problem(what, got=name, expected=expected, fix=fix)) from None

    def _fill(self, name: str, value: Any) -> None:
        """Set a field of any kind, as the constructor may."""
        field = self._field(name)
        if field.keys or field.repeated:
            getattr(self, name).extend(value)
        elif isinstance(field.kind, str):
            setattr(self, name, value)
        else:
            child = getattr(self, name)
            child.MergeFrom(field.kind(**value) if isinstance(value, Mapping) else value)
            child.SetInParent()
            self._leave_alone(name, field)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        field = self._field(name)
        if name in self._values:
            return self._values[name]
        if not (field.keys or field.repeated or field.is_message):
            return SCALARS[str(field.kind)].default
        made = self._values[name] = _container(name, field)
        return made

    def __setattr__(self, name: str, value: Any) -> None:
        field = self._field(name)
        if field.keys or field.repeated or not isinstance(field.kind, str):
            fix = f"Use `{name}.CopyFrom(...)`, or `.extend(...)` where the field is repeated."
            what = f"`{name}` of {type(self).__name__} cannot be assigned"
            raise AttributeError(problem(what, got=type(value).__name__, expected="a change in place", fix=fix))
        self._values[name] = SCALARS[field.kind].check(name, value)
        self._leave_alone(name, field)

    def _leave_alone(self, name: str, field: Field) -> None:
        """Of a oneof, the field that was set last is there alone."""
        if field.oneof:
            for other, theirs in self.FIELDS.items():
                if theirs.oneof == field.oneof and other != name:
                    self._values.pop(other, None)

    def _is_set(self, name: str, field: Field) -> bool:
        value = self._values.get(name)
        if isinstance(value, Message):
            return value._present or any(True for _ in value.ListFields())
        if field.oneof:
            return value is not None
        return bool(value)

    def ListFields(self) -> Iterator[tuple[Field, Any]]:  # noqa: N802
        """The fields that are there, in the order of their numbers."""
        for name, field in sorted(self.FIELDS.items(), key=lambda item: item[1].number):
            if self._is_set(name, field):
                yield field, self._values[name]

    def HasField(self, name: str) -> bool:  # noqa: N802
        """Whether a field is there."""
        if name not in self.FIELDS and any(field.oneof == name for field in self.FIELDS.values()):
            return self.WhichOneof(name) is not None
        return self._is_set(name, self._field(name))

    def WhichOneof(self, oneof: str) -> str | None:  # noqa: N802
        """The name of the field of a oneof that is there."""
        members = ((name, field) for name, field in self.FIELDS.items() if field.oneof == oneof)
        return next((name for name, field in members if self._is_set(name, field)), None)

    def SetInParent(self) -> None:  # noqa: N802
        """Count as there although nothing is set."""
        object.__setattr__(self, "_present", True)

    def Clear(self) -> None:  # noqa: N802
        """Unset all fields."""
        self._values.clear()

    def ClearField(self, name: str) -> None:  # noqa: N802
        """Unset a field."""
        self._field(name)
        self._values.pop(name, None)

    def MergeFrom(self, other: Message) -> None:  # noqa: N802
        """Take over the fields that are set in `other`; repeated ones are appended."""
        self.MergeFromString(other.SerializeToString())

    def CopyFrom(self, other: Message) -> None:  # noqa: N802
        """Become equal to `other`."""
        data = other.SerializeToString()
        self.Clear()
        self.MergeFromString(data)
        self.SetInParent()

    def SerializeToString(self) -> bytes:  # noqa: N802
        """The message on the wire."""
        return b"".join(_encoded(field, value) for field, value in self.ListFields())

    def SerializePartialToString(self) -> bytes:  # noqa: N802
        """The same: no field is required."""
        return self.SerializeToString()

    def ByteSize(self) -> int:  # noqa: N802
        """The length of the message on the wire."""
        return len(self.SerializeToString())

    def IsInitialized(self) -> bool:  # noqa: N802
        """No field is required."""
        return True

    def ParseFromString(self, data: bytes) -> int:  # noqa: N802
        """Become what `data` says."""
        self.Clear()
        return self.MergeFromString(data)

    def MergeFromString(self, data: bytes) -> int:  # noqa: N802
        """Take over the fields on the wire; unknown ones are skipped."""
        names = {field.number: (name, field) for name, field in self.FIELDS.items()}
        view, at = memoryview(data), 0
        while at < len(view):
            key, at = read_varint(view, at)
            value, at = read_value(view, at, key & 7)
            if key >> 3 in names:
                self._take(*names[key >> 3], value, key & 7)
        return len(data)

    def _take(self, name: str, field: Field, value: Any, wire: int) -> None:
        """Take over one field's value from the wire."""
        if field.keys:
            getattr(self, name).take(value)
        elif isinstance(field.kind, str):
            self._take_scalar(name, field, value, wire)
        else:
            child = getattr(self, name).add() if field.repeated else getattr(self, name)
            child.MergeFromString(value)
            child.SetInParent()
            self._leave_alone(name, field)

    def _take_scalar(self, name: str, field: Field, value: Any, wire: int) -> None:
        scalar = SCALARS[str(field.kind)]
        is_packed = wire == DELIMITED and scalar.wire != DELIMITED
        if field.repeated:
            getattr(self, name).extend(unpacked(scalar, value) if is_packed else [scalar.decode(_raw(value))])
        else:
            setattr(self, name, scalar.decode(_raw(value)))

    @classmethod
    def FromString(cls, data: bytes) -> Self:  # noqa: N802
        """The message that `data` holds."""
        found = cls()
        found.ParseFromString(data)
        return found

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.SerializeToString() == self.SerializeToString()

    __hash__ = None  # type: ignore[assignment]

    def __deepcopy__(self, _memo: Any) -> Self:
        return type(self).FromString(self.SerializeToString())

    def __reduce__(self) -> Any:
        return type(self).FromString, (self.SerializeToString(),)

    def __str__(self) -> str:
        return "".join(f"{line}\n" for line in _lines(self))

    __repr__ = __str__


def _raw(value: Any) -> Any:
    return value if isinstance(value, int) else bytes(value)


def _container(name: str, field: Field) -> Any:
    if field.keys:
        return MessageMap(name, field.keys, field.kind)
    if isinstance(field.kind, str):
        return RepeatedScalars(name, field.kind)
    return RepeatedMessages(field.kind) if field.repeated else field.kind()


def _encoded(field: Field, value: Any) -> bytes:
    """A field on the wire; repeated numbers are packed."""
    if field.keys:
        parts = value.entries()
    elif field.is_message:
        parts = [each.SerializeToString() for each in (value if field.repeated else [value])]
    else:
        return _encoded_scalars(field, value)
    return b"".join(key_of(field.number, DELIMITED) + delimited(part) for part in parts)


def _encoded_scalars(field: Field, value: Any) -> bytes:
    scalar = SCALARS[str(field.kind)]
    if scalar.wire == DELIMITED:
        texts: Iterable[Any] = value if field.repeated else [value]
        return b"".join(key_of(field.number, DELIMITED) + delimited(scalar.encode(each)) for each in texts)
    if field.repeated:
        return key_of(field.number, DELIMITED) + delimited(b"".join(map(scalar.encode, value)))
    return key_of(field.number, scalar.wire) + scalar.encode(value)


def _lines(message: Message) -> Iterator[str]:
    """The message in the text format."""
    names = {field: name for name, field in message.FIELDS.items()}
    for field, value in message.ListFields():
        for each in value if field.repeated else [value]:
            yield from _field_lines(names[field], each)


def _field_lines(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, MessageMap):
        for key, each in value.items():
            yield from [f"{name} {{", f"  key: {_literal(key)}", *_indented(_field_lines("value", each)), "}"]
    elif isinstance(value, Message):
        yield from [f"{name} {{", *_indented(_lines(value)), "}"]
    else:
        yield f"{name}: {_literal(value)}"


def _indented(lines: Iterator[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | bytes):
        text = value if isinstance(value, str) else value.decode("latin-1")
        escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{escaped}"'
    return repr(value)
