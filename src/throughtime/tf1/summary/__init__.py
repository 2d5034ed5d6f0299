"""`tf.summary`: values for TensorBoard."""
