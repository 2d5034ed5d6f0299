"""How many threads run a kernel, and which rows each gets."""
