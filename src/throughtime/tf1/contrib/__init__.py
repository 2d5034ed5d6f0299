"""`tf.contrib`, as far as it has no package of its own."""
