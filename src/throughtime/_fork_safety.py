"""What a forked process must make anew: threads stay behind, and a lock that one of them held would stay locked."""

from __future__ import annotations

import os
from collections.abc import Callable


def after_fork(renew: Callable[[], None]) -> Callable[[], None]:
    """Have a function called in every forked child; where processes cannot fork there is nothing to do."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=renew)
    return renew
