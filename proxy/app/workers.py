"""Builds the application of a worker process, where ``serve`` runs several workers.

uvicorn imports this module in each worker, so all arguments come from the environment.
"""

from __future__ import annotations

import gc
import json
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
    """Build the application of a worker from the environment that ``serve`` prepared.

    ``TIDEMARK_WORKER`` has what is not in the configuration, so that each value in force still has its source.
    """
    configure()
    _end_with_parent()
    order = json.loads(os.environ["TIDEMARK_WORKER"])
    path = os.environ.get("TIDEMARK_CONFIG")
    settings = load(Path(path) if path else None, os.environ).listening(**order["arguments"])
    app = create_app(
        settings,
        store_url=order["store_url"],
        secret=order["secret"].encode(),
        warn=logging.getLogger("tidemark").warning,
        shared_metrics=Path(os.environ["PROMETHEUS_MULTIPROC_DIR"]),
    )
    # Modules are never freed, so the collector need not visit them; with a large request that blocked the loop for
    # some 40 ms.
    gc.freeze()
    return app


def _end_with_parent() -> None:
    """End this worker when its parent ends, even by ``kill -9``.

    The embedded store ends with the parent, and a remaining worker would occupy the port of the next start.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()
