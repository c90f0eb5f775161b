"""Supervision: the embedded server is started again when it ends by itself, with its data.

Above ``embedded.py``, used by the command that owns the server; requests go on without the store meanwhile. A thread of
its own, since the command is busy with serving, and since Linux ends a child with the thread that started it.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from proxy.core.errors import StoreUnavailable
from proxy.store.embedded.server import EmbeddedValkey

SOUND_SECONDS = 10.0
"""A server that ran so long is started again at once; one that ended sooner has a cause that a start does not mend."""
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0
"""Between an end and the next start the pause doubles from the first to this; the first start is at once."""
_MOST_DOUBLED = 8


class Supervised:
    """An embedded server that is started again when it ends unasked.

    Its state is the thread, and whether all is over.
    """

    def __init__(self, server: EmbeddedValkey, tell: Callable[[str], None]) -> None:
        """Nothing is started yet.

        :param tell: told, from the thread, why the server ended and what is done about it
        """
        self._server = server
        self._tell = tell
        self._changing = threading.Lock()
        """Held by whoever starts or stops the server."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="embedded-store", daemon=True)

    def __enter__(self) -> Self:
        """Start the server.

        :raises StoreInUse, StoreUnavailable, ConfigError: as ``EmbeddedValkey.start``
        """
        self._server.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        with self._changing:
            self._server.stop()
        self._thread.join()

    @property
    def url(self) -> str:
        """The address for ``RedisStore``; it stays the same."""
        return self._server.url

    def _watch(self) -> None:
        again, pause = 0, 0.0
        while True:
            begun = time.monotonic()
            code = self._server.wait()
            if self._over.is_set():
                return
            again = 0 if time.monotonic() - begun > SOUND_SECONDS else again
            pause = min(FIRST_PAUSE_SECONDS * 2 ** (again - 1), LONGEST_PAUSE_SECONDS) if again else 0.0
            again = min(again + 1, _MOST_DOUBLED)
            self._tell(self._server.last_words(f"{_ended(code)}, and it is started again in {pause:.1f} s"))
            if self._over.wait(pause):
                return
            self._start_again()

    def _start_again(self) -> None:
        begun = time.monotonic()
        try:
            with self._changing:
                if self._over.is_set():
                    return
                self._server.launch()
            self._server.wait_for_answer()
        except (StoreUnavailable, OSError) as error:
            if not self._over.is_set():
                self._tell(str(error))
        else:
            self._tell(f"The embedded store answers again, {time.monotonic() - begun:.1f} s after its start.")


def _ended(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"it ended with exit code {code}"
    try:
        return f"it was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"it was ended by signal {-code}"
