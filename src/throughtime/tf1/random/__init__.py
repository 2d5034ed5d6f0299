"""TensorFlow's random numbers: Philox streams, distributions, seeds and initialisers."""
