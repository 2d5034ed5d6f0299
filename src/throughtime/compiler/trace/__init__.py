"""One step of a cell as a graph."""
