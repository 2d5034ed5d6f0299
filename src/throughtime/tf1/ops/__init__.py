"""Operations: a table of names and torch kernels, one file a family."""
