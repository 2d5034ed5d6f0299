"""From the loop of a step graph to a loop program."""
