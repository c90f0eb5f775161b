"""The one door to tiktoken: where a vocabulary lies, and how text is fed to it.

Below ``counting``, which asks for counts only. tiktoken downloads its vocabularies at first use; here they
come out of litellm's wheel, and a file that is missing or altered is an error, never a download.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from proxy.core.errors import TokenizerFailed

_SAME_RANKS = {"o200k_harmony": "o200k_base"}
"""Harmony has the ranks and the pattern of o200k_base and adds special tokens, which are never made of a text."""
_FILES = {
    # name of the file in tiktoken's cache (SHA-1 of where it is published), SHA-256 of its bytes
    "o200k_base": (
        "fb374d419588a4632f3f557e76b4b70aebbca790",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    ),
    "cl100k_base": (
        "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    ),
}
_MEND = (
    "Sending the request again may help. If it does not, install Tidemark's locked dependencies again, or set "
    "tokenizer.on_failure to estimate."
)
_FOLDER_VARIABLE = "TIKTOKEN_CACHE_DIR"
_loading = threading.Lock()
_loaded: dict[tuple[str, Path | None], Vocabulary] = {}

OWNER = ThreadPoolExecutor(1, "tidemark-tokens")
"""The thread that is first to use every vocabulary. tiktoken's regular expressions serve their first thread some
20 % quicker than any other (measured), and that must not be the event loop's."""

PIECE_CHARS = 10_000
"""Longest text given to tiktoken at once: 1 MB of spaces makes it panic, and one call of this size holds a
thread for 1 to 5 ms on a common core, whatever the letters are."""


class Encoder(Protocol):
    """The two calls that we make of ``tiktoken.Encoding``."""

    def encode_ordinary(self, text: str) -> list[int]:
        """Tokens of a text, special tokens taken for ordinary text."""
        ...

    def decode_bytes(self, tokens: list[int]) -> bytes:
        """The bytes that tokens stand for."""
        ...


class Vocabulary:
    """One encoding, fed in pieces so that time stays linear in the text and no text makes it panic."""

    def __init__(self, name: str, encoder: Encoder) -> None:
        self.name = name
        self._encoder = encoder

    def count(self, text: str) -> int:
        """Tokens of a text of any length.

        Exact where every ``PIECE_CHARS`` hold a space or a line end; without one a piece ends inside a word,
        which can add a few tokens a piece.

        :raises TokenizerFailed: the tokenizer did not come through
        """
        if len(text) <= PIECE_CHARS:
            return len(self._encode(text)) if text else 0
        return sum(len(self._encode(piece)) for piece in pieces(text))

    def cut(self, text: str, max_tokens: int) -> str:
        """The longest beginning that has at most ``max_tokens`` tokens when it is counted by itself."""
        end, left = 0, max_tokens
        for piece in pieces(text):
            tokens = self._encode(piece)
            if len(tokens) > left:
                return text[: end + self._cut_piece(piece, tokens, left)]
            end += len(piece)
            left -= len(tokens)
        return text

    def _cut_piece(self, piece: str, tokens: list[int], left: int) -> int:
        """How many characters of a piece fit into ``left`` tokens; its own ``tokens`` are too many."""
        if left <= 0:
            return 0
        # A character may be split between two tokens: what is left of it at the end does not count.
        end = len(self._encoder.decode_bytes(tokens[:left]).decode(errors="ignore"))
        head = _last_boundary(piece, 0, end)
        spare = left - (len(self._encode(piece[:head])) if head else 0)
        # Cut text is tokenized anew, and its last word may come out in more or in fewer tokens than before.
        while end > head and len(self._encode(piece[head:end])) > spare:
            end -= 1
        while end < len(piece) and len(self._encode(piece[head : end + 1])) <= spare:
            end += 1
        return end

    def _encode(self, text: str) -> list[int]:
        try:
            return self._encoder.encode_ordinary(text)
        except BaseException as error:
            # A panic in tiktoken's Rust arrives as a BaseException whose class cannot be imported.
            if isinstance(error, Exception) or type(error).__name__ == "PanicException":
                raise TokenizerFailed(
                    "The tokens of the request could not be counted. Sending it again may help; with "
                    "tokenizer.on_failure: estimate they would be estimated.",
                    internal=f"tiktoken {self.name} on {len(text)} characters: {error!r}",
                ) from error
            raise


def pieces(text: str, limit: int = PIECE_CHARS) -> Iterator[str]:
    """The text in pieces of at most ``limit`` characters, cut where tokens end anyway as far as possible."""
    start = 0
    while len(text) - start > limit:
        end = _last_boundary(text, start, start + limit) or start + limit
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


def _last_boundary(text: str, start: int, stop: int) -> int:
    """The last place in ``text[start + 1 : stop]`` where all our encodings split; 0 when there is none near.

    Their patterns never join a space to the word before it, nor a line end to the word after it (a slash may
    be joined to the line end before it). Before a space that follows white space they may not split.
    """
    place = stop
    for _ in range(8):
        place = text.rfind(" ", start, place)
        if place < 0:
            break
        place = start + len(text[start:place].rstrip())
        if place > start and text[place] == " ":
            return place
    line = text.rfind("\n", start, stop - 1) + 1
    if line > start and not text[line].isspace() and text[line] != "/":
        return line
    return 0


def vocabulary(encoding: str, folder: Path | None = None) -> Vocabulary:
    """Load an encoding, once, whoever asks at the same time; 0.2 to 0.6 s of CPU the first time.

    :param folder: where the files lie; None for the folder in litellm's wheel
    :raises TokenizerFailed: its file is missing or altered; the message says how to mend that
    """
    found = _loaded.get((encoding, folder))
    if found is None:
        with _loading:
            found = _loaded.get((encoding, folder))
            if found is None:
                found = _loaded[encoding, folder] = _load(encoding, folder)
    return found


def _load(encoding: str, folder: Path | None) -> Vocabulary:
    ranks = _SAME_RANKS.get(encoding, encoding)
    try:
        import tiktoken  # noqa: PLC0415 - where it cannot be imported, ``tokenizer.on_failure`` says what follows
    except Exception as error:
        raise TokenizerFailed(
            f"tiktoken cannot be imported, so tokens cannot be counted. {_MEND}", internal=repr(error)
        ) from error
    place = folder if folder is not None else _wheel_folder()
    _check(place, ranks)
    # What nobody had set stays: to take a variable out again is to break whoever walks the environment in another
    # thread, as the client of an upstream does when it looks for proxies. Nobody but tiktoken reads this one.
    before = os.environ.get(_FOLDER_VARIABLE)
    os.environ[_FOLDER_VARIABLE] = str(place)
    try:
        encoder = tiktoken.get_encoding(ranks)
        if not threading.current_thread().name.startswith("tidemark-tokens"):
            OWNER.submit(encoder.encode_ordinary, "first").result()
        return Vocabulary(encoding, encoder)
    except Exception as error:
        raise _unusable(ranks, repr(error)) from error
    finally:
        if before is not None:
            os.environ[_FOLDER_VARIABLE] = before


def _wheel_folder() -> Path:
    """The vocabularies in litellm's wheel. Finding a top-level package does not run it."""
    spec = importlib.util.find_spec("litellm")
    if spec is None or spec.origin is None:
        raise _unusable("its", "litellm is not installed")
    return Path(spec.origin).parent / "litellm_core_utils" / "tokenizers"


def _check(folder: Path, ranks: str) -> None:
    """Refuse a missing or altered file: tiktoken would delete it and ask the network."""
    if ranks not in _FILES:
        raise _unusable(ranks, "unknown encoding")
    name, digest = _FILES[ranks]
    try:
        found = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    except OSError as error:
        raise _unusable(ranks, repr(error)) from error
    if found != digest:
        raise _unusable(ranks, f"{folder / name} is altered")


def _unusable(ranks: str, reason: str) -> TokenizerFailed:
    return TokenizerFailed(
        f"The {ranks} vocabulary cannot be read, so tokens cannot be counted; it is part of litellm's package. {_MEND}",
        internal=reason,
    )
