"""The HTTP endpoints: one file for each family of paths."""
