"""Sessions: fetches, feeds, plans, the values of variables, gradients."""
