"""Where the rows of a batch are stored: sorted by length, packed by step."""
