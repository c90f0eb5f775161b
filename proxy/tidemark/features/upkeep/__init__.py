"""Upkeep of the store: checks, exports and imports all of its records."""
