"""Runs long work in threads, so that the event loop stays free."""
