"""`tf.metrics`: measures that are accumulated in local variables."""
