"""Figures of requests: counted by each worker, added up in the store, read for charts."""
