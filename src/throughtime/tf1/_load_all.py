"""Imports every module of `tf1` once, so that the namespace is complete."""

from throughtime.tf1 import _namespace

_namespace.load_all()

from throughtime.tf1.ops._aliases import export_second_names  # noqa: E402

export_second_names()
