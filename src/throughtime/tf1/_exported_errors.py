"""Exports `tf.errors`."""

from throughtime.tf1 import _errors
from throughtime.tf1._namespace import export

_CODES = (
    "CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED "
    "RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS "
    "UNAUTHENTICATED"
)
for _name, _value in vars(_errors).items():
    if isinstance(_value, type) and issubclass(_value, _errors.OpError):
        export(f"errors.{_name}", _value)
export("errors.OperatorNotAllowedInGraphError", _errors.OperatorNotAllowedInGraphError)
export("OpError", _errors.OpError)
export("errors.OK", 0)
for _code, _name in enumerate(_CODES.split(), start=1):
    export(f"errors.{_name}", _code)
