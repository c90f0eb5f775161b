"""Supervises the embedded server: if it ends by itself, this starts it again with its data.

The command that owns the server uses it; requests continue without the store meanwhile. It runs in a thread of its own,
since the command is busy with serving, and since Linux ends a child with the thread that started it.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tidemark.core.errors import StoreUnavailable
from tidemark.core.restarts import Restarts
from tidemark.store.embedded.server import EmbeddedValkey


class Supervised:
    """An embedded server that is started again when it ends by itself.

    Mutable: the thread, and whether the server is to end.
    """

    def __init__(self, server: EmbeddedValkey, warn: Callable[[str], None]) -> None:
        """Nothing is started yet.

        :param warn: called from the thread with the reason why the server ended and what is done about it
        """
        self._server = server
        self._warn = warn
        self._lock = threading.Lock()
        """Locked while the server is started or stopped."""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="embedded-store", daemon=True)

    def __enter__(self) -> Self:
        """Start the server. One that does not start is tried again later: requests work without the store.

        :raises StoreInUse, ConfigError: as ``EmbeddedValkey.claim``
        """
        self._server.claim()
        try:
            self._server.bring_up()
        except StoreUnavailable as error:
            self._warn(f"{error}\nRequests are served without the store meanwhile.")
        except BaseException:  # interrupted, too: the server must not outlive this process
            self._server.stop()
            raise
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        with self._lock:
            self._server.stop()
        self._thread.join()

    @property
    def url(self) -> str:
        """The address for ``RedisStore``, which never changes."""
        return self._server.url

    def _watch(self) -> None:
        restarts = Restarts()
        while True:
            started = time.monotonic()
            code = self._server.wait()
            if self._ending.is_set():
                return
            pause = restarts.pause_after(time.monotonic() - started)
            self._warn(
                self._server.message_with_log(f"{_describe_end(code)}, and it is started again in {pause:.1f} s")
            )
            if self._ending.wait(pause):
                return
            self._restart()

    def _restart(self) -> None:
        started = time.monotonic()
        try:
            self._server.bring_up(self._lock)
        except (StoreUnavailable, OSError) as error:
            if not self._ending.is_set():
                self._warn(str(error))
        else:
            if self._ending.is_set():
                return
            self._warn(f"The embedded store answers again, {time.monotonic() - started:.1f} s after its start.")


def _describe_end(code: int) -> str:
    if code >= 0:
        return f"it ended with exit code {code}"
    try:
        return f"it was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"it was ended by signal {-code}"
