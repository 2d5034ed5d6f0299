"""`tf.train`: optimisers, checkpoints, sessions that train."""
