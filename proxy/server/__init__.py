"""The HTTP edge: bytes in, bytes out; no rules of its own."""
