"""Summaries of stored conversations: made by hand, changed, previewed, and compared by their receipts."""
