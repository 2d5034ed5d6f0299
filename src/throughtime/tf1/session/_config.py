"""`ConfigProto` and its kin: read as far as they mean something here, else accepted."""

from __future__ import annotations

from typing import Any

from throughtime.tf1._namespace import export, exported


class Message:
    """A message with fields that are made at their first use, as a protocol buffer's are."""

    def __init__(self, **fields: Any):
        for name, value in fields.items():
            setattr(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = Message()
        object.__setattr__(self, name, made)
        return made

    def __bool__(self) -> bool:
        return bool(vars(self))

    def CopyFrom(self, other: Message) -> None:  # noqa: N802
        """Take the fields of another message."""
        vars(self).update(vars(other))

    MergeFrom = CopyFrom

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({inside})"


@exported("ConfigProto")
class ConfigProto(Message):
    """Options of a session; `device_count={"GPU": 0}` chooses the CPU."""

    def __init__(self, **fields: Any):
        self.device_count: dict[str, int] = {}
        super().__init__(**fields)


@exported("GPUOptions")
class GPUOptions(Message):
    """Accepted: torch manages the memory."""


@exported("OptimizerOptions")
class OptimizerOptions(Message):
    """Accepted."""

    L0, L1, OFF, ON_1, ON_2 = -1, 0, -1, 1, 2
    DEFAULT = 0


@exported("GraphOptions")
class GraphOptions(Message):
    """Accepted."""


@exported("RunOptions")
class RunOptions(Message):
    """Accepted."""

    NO_TRACE, SOFTWARE_TRACE, HARDWARE_TRACE, FULL_TRACE = range(4)


@exported("RunMetadata")
class RunMetadata(Message):
    """Accepted; nothing is written into it."""


export("compat.v1.ConfigProto", ConfigProto)
