"""From a loop program to the plan of its kernel."""
