"""Puts a worker and its features together as an ASGI application. Nothing here runs in a request."""
