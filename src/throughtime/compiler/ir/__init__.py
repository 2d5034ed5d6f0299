"""Step graphs, sections and loop programs, with their verifiers."""
