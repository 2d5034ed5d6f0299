"""`tensorflow.examples`: what tutorials import."""
