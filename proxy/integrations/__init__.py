"""Tidemark inside other frameworks, as a library: the same core, without the proxy around it."""
