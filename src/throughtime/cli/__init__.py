"""The `throughtime` command."""

from throughtime.cli._app import app, main

__all__ = ["app", "main"]
