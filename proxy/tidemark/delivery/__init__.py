"""Delivers entries of a queue in the store to consumers, at least once, by one process of all."""
