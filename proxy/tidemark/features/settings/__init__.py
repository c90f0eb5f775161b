"""Settings that an operator changes while the server runs."""
