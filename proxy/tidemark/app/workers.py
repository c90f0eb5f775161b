"""Builds the application of a worker process, if ``serve`` runs several workers.

``cli/serve.py`` calls it in each worker, also in one that takes the place of another later.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import signal
import threading
from pathlib import Path

from starlette.applications import Starlette

from tidemark.app.application import create_app
from tidemark.config import Settings
from tidemark.telemetry.logging import configure


def build_worker(settings: Settings, *, store_url: str, secret: bytes, shared_metrics: Path) -> Starlette:
    """Build the application of a worker from what ``serve`` read at its start.

    :param settings: the parent's: all workers have one configuration, whatever has become of the file since
    :param shared_metrics: the folder that the workers write their counts to
    """
    configure()
    _end_with_parent()
    app = create_app(
        settings,
        store_url=store_url,
        secret=secret,
        warn=logging.getLogger("tidemark").warning,
        shared_metrics=shared_metrics,
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
