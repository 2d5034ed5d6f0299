"""`tf.contrib.layers`."""
