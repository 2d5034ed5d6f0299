"""Imports every module of `tf1` once, so that the namespace is complete."""

from throughtime.tf1 import _namespace

_namespace.load_all()
