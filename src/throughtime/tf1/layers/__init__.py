"""`tf.layers` and `tf.contrib.layers`."""
