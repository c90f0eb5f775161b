"""What the demo's end-to-end tests share: the skip without the extra, and a search for processes."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tidemark.demo import llama

_GONE_SECONDS = 15.0
_LOOK_SECONDS = 0.05
_EMPTY_LOOKS = 2


@pytest.fixture(scope="session")
def real_model() -> Path:
    """Return the path of the model's weights; skip the test where the extra `local` is not installed."""
    try:
        return llama.weights()
    except llama.ExtraMissingError as error:
        pytest.skip(str(error))


def running(word: str) -> list[str]:
    """Return the command lines of all living processes that hold `word`; a zombie has none."""
    if not Path("/proc/self/cmdline").exists():
        listing = subprocess.run(["/bin/ps", "-axo", "command"], capture_output=True, text=True, check=True)
        return [line for line in listing.stdout.splitlines() if word in line]
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it ended while we looked
            continue
        if word in line:
            found.append(line)
    return found


@pytest.fixture
def all_ended() -> Callable[[str], bool]:
    """Return a function that waits until no process holds a word in its command line, and says whether so.

    A process that becomes another program has no command line for a moment, so two looks in a row must find nothing.
    """

    def wait(word: str) -> bool:
        deadline = time.monotonic() + _GONE_SECONDS
        empty_looks = 0
        while empty_looks < _EMPTY_LOOKS and time.monotonic() < deadline:
            empty_looks = 0 if running(word) else empty_looks + 1
            time.sleep(_LOOK_SECONDS)
        return empty_looks == _EMPTY_LOOKS

    return wait
