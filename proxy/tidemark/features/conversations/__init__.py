"""Stored conversations: listed, found, read, shown as a context, exported, imported and deleted."""
