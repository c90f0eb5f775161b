"""The console at ``/console``: pages that show the operator what Tidemark does to conversations.

It is a client of the features, as the JSON endpoints are, and has no rules of its own.
``pages.py`` answers requests, ``sessions.py`` signs the operator in, and each family of pages has a module.
"""
