"""The memory flush (S0-4): what leaves the context goes to consumers, and no request waits for it."""
