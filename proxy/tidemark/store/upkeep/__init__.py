"""Looks after a whole store, beside the requests that use it."""
