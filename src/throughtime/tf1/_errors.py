"""`tf.errors`: the errors of running operations."""

from __future__ import annotations

from typing import Any


class OpError(Exception):
    """An operation failed; `op` is the operation, `message` says why."""

    error_code = 2

    def __init__(self, node_def: Any, op: Any, message: str, error_code: int | None = None):
        super().__init__(message)
        self.node_def = node_def
        self.op = op
        self.message = message
        if error_code is not None:
            self.error_code = error_code

    def __str__(self) -> str:
        return self.message


class OperatorNotAllowedInGraphError(TypeError):
    """Python asked a tensor for its value while the graph was built."""


class CancelledError(OpError):
    """The operation was cancelled."""

    error_code = 1


class UnknownError(OpError):
    """The operation failed for an unknown reason."""

    error_code = 2


class InvalidArgumentError(OpError):
    """The operation was given values that it cannot take."""

    error_code = 3


class DeadlineExceededError(OpError):
    """The operation took too long."""

    error_code = 4


class NotFoundError(OpError):
    """A file, a key or a variable was not found."""

    error_code = 5


class AlreadyExistsError(OpError):
    """What was to be made exists already."""

    error_code = 6


class PermissionDeniedError(OpError):
    """The file system refused access."""

    error_code = 7


class ResourceExhaustedError(OpError):
    """Out of memory."""

    error_code = 8


class FailedPreconditionError(OpError):
    """A variable was read before it was initialised, or the system is otherwise not ready."""

    error_code = 9


class AbortedError(OpError):
    """The operation was aborted."""

    error_code = 10


class OutOfRangeError(OpError):
    """The end of a dataset or a queue."""

    error_code = 11


class UnimplementedError(OpError):
    """The operation is not implemented."""

    error_code = 12


class InternalError(OpError):
    """The system is broken."""

    error_code = 13


class UnavailableError(OpError):
    """The runtime is not available."""

    error_code = 14


class DataLossError(OpError):
    """A file is damaged."""

    error_code = 15


class UnauthenticatedError(OpError):
    """The request has no valid credentials."""

    error_code = 16
