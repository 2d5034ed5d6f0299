"""`tf.losses`: losses with weights, gathered in a collection."""
