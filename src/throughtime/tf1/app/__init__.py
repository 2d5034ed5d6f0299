"""Flags, `app.run` and logging."""
