"""Where the inputs of a decoder come from."""
