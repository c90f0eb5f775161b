"""The application of a worker process that the command started with several others: ``uvicorn proxy.app.workers``."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from pathlib import Path

from starlette.applications import Starlette

from proxy.app.application import create_app
from proxy.config import load
from proxy.telemetry.logging import configure


def from_environment() -> Starlette:
    """The application of a worker that the command started with several: all it needs stands in the environment."""
    configure()
    _end_with_parent()
    path = os.environ.get("TIDEMARK_CONFIG")
    settings = load(Path(path) if path else None, os.environ).listening(host=os.environ["TIDEMARK_HOST"])
    secret = settings.secrets.signing
    if secret is None:
        message = "TIDEMARK_SECRET must be set for a worker"
        raise RuntimeError(message)
    return create_app(
        settings,
        store_url=str(settings.store.url),
        secret=secret.reveal().encode(),
        warn=logging.getLogger("tidemark").warning,
        shared_metrics=Path(os.environ["PROMETHEUS_MULTIPROC_DIR"]),
    )


def _end_with_parent() -> None:
    """End this worker when the command that started it is gone, by ``kill -9`` too.

    The embedded store ends with the command, and whoever holds the port without one keeps the next start from it.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()
