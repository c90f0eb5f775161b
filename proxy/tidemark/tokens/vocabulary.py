"""Loads tiktoken's vocabularies and encodes texts; no other module imports tiktoken.

``counting`` uses it for counts only. tiktoken downloads its vocabularies at first use. Here they come from litellm's
wheel, and a missing or altered file is an error, never a download.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from tidemark.core.errors import TokenizerFailed

if TYPE_CHECKING:
    from tiktoken import Encoding

_SAME_RANKS = {"o200k_harmony": "o200k_base"}
"""Harmony has the ranks and the pattern of o200k_base, and adds special tokens that no text encodes to."""
_FILES = {
    # The file's name in tiktoken's cache (SHA-1 of its address), and the SHA-256 of its bytes.
    "o200k_base": (
        "fb374d419588a4632f3f557e76b4b70aebbca790",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    ),
    "cl100k_base": (
        "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    ),
}
_REMEDY = (
    "Sending the request again may help. If it does not, install Tidemark's locked dependencies again, or set "
    "tokenizer.on_failure to estimate."
)
_FOLDER_VARIABLE = "TIKTOKEN_CACHE_DIR"
_loaded: dict[tuple[str, Path | None], Vocabulary] = {}
_OWNERS_NAME = "tidemark-tokens"
OWNER = ThreadPoolExecutor(1, _OWNERS_NAME)
"""The first thread that uses each vocabulary. tiktoken's regular expressions serve their first thread some 20 % quicker
than any other (measured), and that must not be the event loop's thread."""

PIECE_CHARS = 10_000
"""The longest text that tiktoken encodes at once, in characters. 1 MB of spaces makes it panic, and one call of this
size occupies a thread for 1 to 5 ms on a common core, whatever the text."""


class Vocabulary:
    """One encoding, which encodes in pieces, so that its time is linear and no text makes it panic."""

    def __init__(self, name: str, encoder: Encoding) -> None:
        self.name = name
        self._encoder = encoder

    def count(self, text: str) -> int:
        """Count the tokens of a text of any length.

        The count is exact if all ``PIECE_CHARS`` characters contain a space or a line end. Without one, a piece ends
        inside a word, which can add a few tokens to each piece.

        :raises TokenizerFailed: the tokenizer failed
        """
        if len(text) <= PIECE_CHARS:
            return len(self._encode(text)) if text else 0
        return sum(len(self._encode(piece)) for piece in pieces(text))

    def rank(self, word: str) -> int | None:
        """Return the rank of a word with a blank before it; None if it is not one token.

        The ranks are the order of byte-pair merges (Sennrich et al. 2016), so that frequent words come first.
        """
        try:
            return self._encoder.encode_single_token(" " + word)
        except KeyError:
            return None

    def cut(self, text: str, max_tokens: int) -> str:
        """Return the longest beginning that has at most ``max_tokens`` tokens when it is counted alone."""
        end, remaining = 0, max_tokens
        for piece in pieces(text):
            tokens = self._encode(piece)
            if len(tokens) > remaining:
                return text[: end + self._cut_piece(piece, tokens, remaining)]
            end += len(piece)
            remaining -= len(tokens)
        return text

    def _cut_piece(self, piece: str, tokens: list[int], max_tokens: int) -> int:
        """Return how many characters of a piece fit into ``max_tokens``; all its ``tokens`` do not."""
        if max_tokens <= 0:
            return 0
        # A character may be split between two tokens. A partial one at the end is not counted.
        end = len(self._encoder.decode_bytes(tokens[:max_tokens]).decode(errors="ignore"))
        head = _last_boundary(piece, 0, end)
        spare = max_tokens - (len(self._encode(piece[:head])) if head else 0)
        # The shortened text is tokenized again, and its last word may have more or fewer tokens than before.
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
    """Split a text into pieces of at most ``limit`` characters, if possible at the end of a token."""
    start = 0
    while len(text) - start > limit:
        end = _last_boundary(text, start, start + limit) or start + limit
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


def _last_boundary(text: str, start: int, stop: int) -> int:
    """Return the last place in ``text[start + 1 : stop]`` where all our encodings split; 0 without one nearby.

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
    """Load an encoding once for all threads; the first time takes 0.2 to 0.6 s of CPU.

    Any thread may ask, and ``OWNER`` alone loads, one after another: nobody holds a lock while he waits for it.

    :param folder: the folder of the files; None for the one in litellm's wheel
    :raises TokenizerFailed: the file is missing or altered; the message says how to fix that
    """
    loaded = _loaded.get((encoding, folder))
    if loaded is not None:
        return loaded
    if not threading.current_thread().name.startswith(_OWNERS_NAME):
        return OWNER.submit(vocabulary, encoding, folder).result()
    loaded = _loaded[encoding, folder] = _load(encoding, folder)
    return loaded


def _load(encoding: str, folder: Path | None) -> Vocabulary:
    ranks = _SAME_RANKS.get(encoding, encoding)
    try:
        import tiktoken  # noqa: PLC0415 - if it cannot be imported, ``tokenizer.on_failure`` says what follows
    except Exception as error:  # a broken binary raises more than ImportError
        raise TokenizerFailed(
            f"tiktoken cannot be imported, so tokens cannot be counted. {_REMEDY}", internal=repr(error)
        ) from error
    place = folder if folder is not None else _wheel_folder()
    _check(place, ranks)
    # A variable that was not set before stays set. Removing it would break another thread that iterates over the
    # environment, as an upstream's client does when it looks for proxies. Only tiktoken reads this variable.
    before = os.environ.get(_FOLDER_VARIABLE)
    os.environ[_FOLDER_VARIABLE] = str(place)
    try:
        encoder = tiktoken.get_encoding(ranks)
        encoder.encode_ordinary("first")  # in this thread, see ``OWNER``
        return Vocabulary(encoding, encoder)
    except Exception as error:  # tiktoken has no error of its own for a file that it cannot use
        raise _unusable(ranks, repr(error)) from error
    finally:
        if before is not None:
            os.environ[_FOLDER_VARIABLE] = before


def _wheel_folder() -> Path:
    """Return the folder of vocabularies in litellm's wheel. Looking for a package does not run it."""
    spec = importlib.util.find_spec("litellm")
    if spec is None or spec.origin is None:
        raise _unusable("its", "litellm is not installed")
    return Path(spec.origin).parent / "litellm_core_utils" / "tokenizers"


def _check(folder: Path, ranks: str) -> None:
    """Refuse a missing or altered file, which tiktoken would delete and download."""
    if ranks not in _FILES:
        raise _unusable(ranks, "unknown encoding")
    name, digest = _FILES[ranks]
    try:
        actual = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    except OSError as error:
        raise _unusable(ranks, repr(error)) from error
    if actual != digest:
        raise _unusable(ranks, f"{folder / name} is altered")


def _unusable(ranks: str, reason: str) -> TokenizerFailed:
    return TokenizerFailed(
        f"The {ranks} vocabulary cannot be read, so tokens cannot be counted; it is part of litellm's package. "
        f"{_REMEDY}",
        internal=reason,
    )
