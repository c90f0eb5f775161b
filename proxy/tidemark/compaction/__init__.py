"""Makes summaries: for a request that waits, in the background, by hand, or offline."""
