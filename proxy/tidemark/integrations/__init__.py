"""Adapters that use Tidemark's core as a library inside other frameworks, without the proxy."""
