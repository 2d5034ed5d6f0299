"""`contrib.seq2seq` and `contrib.legacy_seq2seq`: decoders, helpers, attention and losses of sequences."""
