"""Logging is the process's own: everything that a test changes of it is put back."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog


@contextmanager
def logging_put_back() -> Iterator[None]:
    """Restore the handlers and levels of the root and of libraries, and structlog's configuration.

    What other tests changed is out of the way meanwhile: the upstream's silences litellm when it is imported.
    """
    root = logging.getLogger()
    handlers, level, before = root.handlers[:], root.level, structlog.get_config()
    libraries = [logging.getLogger(name) for name in ("LiteLLM", "httpx")]
    states = [(library.level, library.filters[:]) for library in libraries]
    for library in libraries:
        library.setLevel(logging.NOTSET)
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        for library, (library_level, filters) in zip(libraries, states, strict=True):
            library.setLevel(library_level)
            library.filters[:] = filters
        logging.captureWarnings(capture=False)
        structlog.configure(**before)
