"""Shows changing pages on the whole terminal, and leaves the terminal as it was; ``tidemark top`` uses it.

Rich draws them; keys and signals are handled here, since it knows neither. Signals only set a note, which the loop
reads. Therefore nothing interrupts the restoring of the terminal. Only SIGKILL, which no process can catch, leaves it
changed.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import termios
import tty
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from rich.console import Console, ConsoleDimensions, RenderableType
from rich.live import Live

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
SIZE_COLUMNS, SIZE_LINES = 80, 24
"""For a terminal that does not know its size."""


class FullScreen:
    """A terminal that is shown pages; ``on`` opens it."""

    def __init__(self, console: Console, keys: int | None, wakes: int) -> None:
        self._console = console
        self._live = Live(
            console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )
        self._keys = keys
        self._wakes = wakes
        self._modes: list[Any] | None = None
        self._received: list[int] = []
        self.is_ended = False
        """Whether a signal ended it; further ones are ignored then, so that the exit code is that of the first."""

    def receive(self, number: int, _: FrameType | None = None) -> None:
        """Note a signal; the loop acts on it."""
        self._received.append(number)

    @property
    def size(self) -> tuple[int, int]:
        """Return columns and lines; rich would believe COLUMNS and LINES, which do not change with the terminal."""
        with contextlib.suppress(OSError):
            size = os.get_terminal_size(self._console.file.fileno())
            if size.columns > 0 and size.lines > 0:
                return size.columns, size.lines
        return SIZE_COLUMNS, SIZE_LINES

    def show(self, page: RenderableType) -> None:
        """Replace the page; it is written at once, so that it does not flicker."""
        self._console.size = ConsoleDimensions(*self.size)
        self._live.update(page, refresh=True)

    def wait(self, seconds: float) -> str | int | None:
        """Wait for a key, a wake-up or a signal.

        :return: the keys as text, the number of a signal that ends the program, or None to show a new page
        """
        sources = [self._wakes, *([self._keys] if self._keys is not None else [])]
        if not self._received:
            ready, _, _ = select.select(sources, [], [], seconds)
            if self._wakes in ready:
                os.read(self._wakes, 4096)
            if self._keys is not None and self._keys in ready and not self._received:
                typed = os.read(self._keys, 64)
                if not typed:  # the terminal is gone
                    return signal.SIGHUP.value
                return typed.decode("utf-8", "replace")
        while self._received:
            number = self._received.pop(0)
            if number in ENDING:
                self.is_ended = True
                return number
            if number == signal.SIGTSTP:
                self._suspend()
        return None

    def enter(self) -> None:
        """Show the alternate screen, and take keys one by one without an echo."""
        if self._keys is not None:
            self._modes = termios.tcgetattr(self._keys)
            tty.setcbreak(self._keys, termios.TCSANOW)
        self._live.start()

    def leave(self) -> None:
        """Put the terminal back; a second call changes nothing."""
        with contextlib.suppress(OSError):  # the terminal may be gone
            self._live.stop()
        if self._keys is not None and self._modes is not None:
            with contextlib.suppress(termios.error, OSError):
                termios.tcsetattr(self._keys, termios.TCSANOW, self._modes)
        self._modes = None

    def _suspend(self) -> None:
        """Stop as Ctrl-Z demands, with the terminal as it was until the shell continues this process."""
        self.leave()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self.receive)
        self.enter()


@contextlib.contextmanager
def on(output: int, keys: int | None) -> Iterator[tuple[FullScreen, Callable[[], None]]]:
    """Yield a screen, and a function with which any thread wakes its ``wait``.

    :param output: the descriptor of a terminal
    :param keys: the descriptor of the terminal that keys come from; None without one
    """
    wakes, waker = os.pipe()
    os.set_blocking(waker, False)
    os.set_blocking(wakes, False)
    file = open(output, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - `sys.stdout` fails at exit if it is gone
    screen = FullScreen(Console(file=file, highlight=False), keys, wakes)

    def wake() -> None:
        with contextlib.suppress(OSError):  # a full pipe wakes as well
            os.write(waker, b".")

    numbers = (*ENDING, signal.SIGTSTP, signal.SIGWINCH)
    handlers = {number: signal.signal(number, screen.receive) for number in numbers}
    before = signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    try:
        screen.enter()
        yield screen, wake
    finally:
        screen.leave()
        signal.set_wakeup_fd(before)
        for number, handler in handlers.items():
            signal.signal(number, signal.SIG_IGN if screen.is_ended and number in ENDING else handler)
        os.close(wakes)
        os.close(waker)
