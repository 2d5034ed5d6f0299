"""Matrix products over packed panels."""
