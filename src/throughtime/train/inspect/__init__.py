"""States and gradients of every step, to look at."""
