"""Tidemark: an OpenAI-compatible streaming reverse proxy that compacts long conversations."""

__version__ = "0.2.0"
