"""The families of recorded cases, a module each."""

FAMILIES = (
    "elementwise",
    "comparison",
    "reductions",
    "arrays",
    "indexing",
    "products",
    "matrices",
    "segments",
    "activations",
    "losses",
    "weighted_losses",
    "embeddings",
    "convolutions",
    "normalisation",
    "random_numbers",
    "initialisers",
    "state",
    "text",
    "images",
    "signals",
    "checks",
    "sparse",
    "old_names",
)


def function(tf, name):
    """The function `tf.a.b` of a dotted name."""
    found = tf
    for part in name.split("."):
        found = getattr(found, part)
    return found
