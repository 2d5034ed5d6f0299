"""The tasks a table can be learned for."""
