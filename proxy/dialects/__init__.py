"""The client formats: what stands between a request's bytes and the core's messages."""
