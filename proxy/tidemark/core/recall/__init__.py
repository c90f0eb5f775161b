"""Recall: finds the earlier messages that bear on the newest user message, and quotes them.

``pipeline/recall.py`` performs it after a request was compacted, and before it is sent (docs/adr/0025).
"""
