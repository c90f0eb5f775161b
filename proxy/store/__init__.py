"""The conversation store: Redis or Valkey through one adapter, and the server that comes along."""
