"""Small whole programs that run alike on TensorFlow 1.15 and on `throughtime.tf1`; what each gives was recorded."""
