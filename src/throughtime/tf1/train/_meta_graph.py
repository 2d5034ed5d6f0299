"""`.meta` files."""
from typing import Any
def write_meta_graph(*a: Any) -> None:
    return None
