"""Graphs as TensorFlow 1 builds them: operations, tensors, names, scopes, variables."""
