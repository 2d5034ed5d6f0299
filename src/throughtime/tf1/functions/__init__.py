"""Sub-graphs as functions: the bodies of control flow and the steps of cells."""
