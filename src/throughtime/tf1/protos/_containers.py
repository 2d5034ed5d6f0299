"""What repeated fields and maps of a message hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from throughtime.interop.checkpoints._protobuf import read_varint
from throughtime.tf1.protos._wire import DELIMITED, SCALARS, delimited, key_of, read_value


class RepeatedScalars(list[Any]):
    """Numbers or texts; what is put in is checked."""

    def __init__(self, name: str, kind: str) -> None:
        super().__init__()
        self._name, self._scalar = name, SCALARS[kind]

    def append(self, value: Any) -> None:
        """Append a value."""
        super().append(self._scalar.check(self._name, value))

    def extend(self, values: Iterable[Any]) -> None:
        """Append values."""
        super().extend(self._scalar.check(self._name, value) for value in values)

    def __setitem__(self, place: Any, value: Any) -> None:
        is_slice = isinstance(place, slice)
        check = self._scalar.check
        super().__setitem__(place, [check(self._name, v) for v in value] if is_slice else check(self._name, value))


class RepeatedMessages(list[Any]):
    """Messages; `add` makes one and returns it."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self._kind = kind

    def add(self, **values: Any) -> Any:
        """Append a new message."""
        super().append(self._kind(**values))
        return self[-1]

    def append(self, message: Any) -> None:
        """Append a copy of a message."""
        self.add().CopyFrom(message)

    def extend(self, messages: Iterable[Any]) -> None:
        """Append copies of messages."""
        for each in messages:
            if isinstance(each, Mapping):
                self.add(**each)
            else:
                self.append(each)


class MessageMap(dict[Any, Any]):
    """A map from texts or numbers to messages or scalars; a message that is not there is made when it is read."""

    def __init__(self, name: str, keys: str, kind: Any) -> None:
        super().__init__()
        self._name, self._keys, self._kind = name, SCALARS[keys], kind

    def __missing__(self, key: Any) -> Any:
        key = self._keys.check(self._name, key)
        if isinstance(self._kind, str):
            return SCALARS[self._kind].default
        made = self._kind()
        super().__setitem__(key, made)
        return made

    def __setitem__(self, key: Any, value: Any) -> None:
        if not isinstance(self._kind, str):
            self[key].CopyFrom(value)
        else:
            super().__setitem__(self._keys.check(self._name, key), SCALARS[self._kind].check(self._name, value))

    def extend(self, values: Mapping[Any, Any]) -> None:
        """Take over all entries."""
        for key, value in values.items():
            self[key] = value

    def entries(self) -> list[bytes]:
        """The entries on the wire, in the order of their keys."""
        return [self._entry(key, self[key]) for key in sorted(self)]

    def _entry(self, key: Any, value: Any) -> bytes:
        head = key_of(1, self._keys.wire) + self._encoded(self._keys, key)
        if not isinstance(self._kind, str):
            return head + key_of(2, DELIMITED) + delimited(value.SerializeToString())
        scalar = SCALARS[self._kind]
        return head + key_of(2, scalar.wire) + self._encoded(scalar, value)

    @staticmethod
    def _encoded(scalar: Any, value: Any) -> bytes:
        data: bytes = scalar.encode(value)
        return delimited(data) if scalar.wire == DELIMITED else data

    def take(self, data: memoryview) -> None:
        """Take over an entry from the wire."""
        found: dict[int, Any] = {}
        at = 0
        while at < len(data):
            key, at = read_varint(data, at)
            found[key >> 3], at = read_value(data, at, key & 7)
        name = self._keys.decode(found[1]) if 1 in found else self._keys.default
        if not isinstance(self._kind, str):
            self[name].MergeFromString(found.get(2, b""))
        elif 2 in found:
            self[name] = SCALARS[self._kind].decode(found[2])
