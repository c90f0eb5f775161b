"""Serves the HTTP endpoints, with one file for each family of paths."""
