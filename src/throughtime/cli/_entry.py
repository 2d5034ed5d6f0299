"""The command while it is still being read: Ctrl-C ends it as it does later, in one line."""

import sys

try:
    from throughtime.cli._app import app, main
except KeyboardInterrupt:
    sys.stderr.write("Interrupted\n")
    raise SystemExit(130) from None

__all__ = ["app", "main"]
