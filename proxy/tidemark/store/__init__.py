"""Stores conversations, summaries, leases, models and queues in Redis or Valkey, and starts a server of its own."""
