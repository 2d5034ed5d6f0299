"""The way to and from other libraries' weights."""

from throughtime.interop._tf_names import tf_variables

__all__ = ["tf_variables"]
