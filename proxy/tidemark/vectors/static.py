"""Makes vectors of sentences from the static vectors of their tokens, which the package ``wordllama`` carries.

The step ``recall`` uses them where ``recall.method`` is ``embedding``. Of ``wordllama`` only the weights and the
vocabulary are used, so nothing is ever downloaded. A sentence's vector is the mean of its tokens' vectors. It is
rounded to whole numbers, so that sums are exact and each worker and machine comes to the same similarities.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is imported: other cores have workers of their own

import numpy as np
from safetensors import safe_open
from tokenizers import Tokenizer

from tidemark.core.bounded import BoundedCache
from tidemark.core.recall.meaning import LEAST_SIMILARITY

if TYPE_CHECKING:
    from numpy.typing import NDArray

DIMENSIONS = 128
"""Of the 256 that a token's vector has; the first ones tell most, and all of them find no more (docs/fidelity.md)."""
MOST_CHARS, MOST_SENTENCES = 4_000, 40
"""What counts of one text; the terms of a longer one are found all the same."""
_SENTENCE_END = re.compile(r"(?<=[.!?;\n\u3002\uff01\uff1f\uff1b])\s*")
"""Also after the marks of Chinese and Japanese."""
_BATCH = 256
_SCALE, _MOST = 254, 127
"""A unit vector's numbers are multiplied by ``_SCALE``. Those beyond a half, which are few, count as a half."""
_CACHED_TEXTS = 4_096
_PACKAGE, _WEIGHTS, _VOCABULARY = (
    "wordllama",
    "weights/l2_supercat_256.safetensors",
    "tokenizers/l2_supercat_tokenizer_config.json",
)


class StaticVectors:
    """The vectors of all tokens, for all conversations of a worker. The mutable state is a cache."""

    def __init__(self) -> None:
        """Load the vectors, which takes half a second and some 70 MB with numpy.

        :raises ModuleNotFoundError: the extra is not installed
        """
        spec = find_spec(_PACKAGE)
        if spec is None or not spec.submodule_search_locations:
            raise ModuleNotFoundError(f"No module named {_PACKAGE!r}", name=_PACKAGE)
        folder = Path(spec.submodule_search_locations[0])
        self._tokenizer: Any = Tokenizer.from_file(str(folder / _VOCABULARY))
        with safe_open(str(folder / _WEIGHTS), framework="np") as weights:
            tokens = weights.get_tensor("embedding.weight")[:, :DIMENSIONS]
        self._tokens: NDArray[np.float32] = tokens.astype(np.float32)
        self._cache: BoundedCache[str, NDArray[np.int8]] = BoundedCache(_CACHED_TEXTS)

    def index(self) -> SentenceVectors:
        """Return an empty index of one conversation."""
        return SentenceVectors(self)

    def of(self, sentences: Sequence[str]) -> NDArray[np.int8]:
        """Return a row for each sentence."""
        rows = np.zeros((len(sentences), DIMENSIONS), np.int8)
        for start in range(0, len(sentences), _BATCH):
            encodings = self._tokenizer.encode_batch(sentences[start : start + _BATCH], add_special_tokens=False)
            for place, encoding in enumerate(encodings, start):
                rows[place] = self._mean(encoding.ids)
        return rows

    def cached(self, sentences: Iterable[str]) -> NDArray[np.int8]:
        """Return a row for each different sentence; those of sentences that come again are not made again."""
        rows = {sentence: self._cache.get(sentence) for sentence in sentences}
        new = [sentence for sentence, row in rows.items() if row is None]
        for sentence, row in zip(new, self.of(new), strict=True):
            rows[sentence] = own = row.copy()  # a view would keep the rows of all new ones
            self._cache.put(sentence, own)
        return np.array(list(rows.values()), np.int8)

    def _mean(self, ids: Sequence[int]) -> NDArray[np.int8]:
        """Return the direction of the tokens' mean. Rows are added one by one, in the same order everywhere."""
        total = self._tokens[ids].sum(axis=0, dtype=np.float64)
        length = float(np.sqrt((total * total).sum()))
        whole: NDArray[np.int8] = np.clip(np.rint(total / (length or 1.0) * _SCALE), -_MOST, _MOST).astype(np.int8)
        return whole


class SentenceVectors:
    """The sentences of one conversation's texts (``core/recall/meaning.py``)."""

    def __init__(self, vectors: StaticVectors) -> None:
        self.size = 0
        self._vectors = vectors
        self._count = 0
        """Of the texts."""
        self._rows: NDArray[np.int8] = vectors.of([])
        self._lengths: NDArray[np.float32] = _lengths(self._rows)
        self._texts: NDArray[np.int32] = np.zeros(0, np.int32)
        """The place of each sentence's text."""

    def add(self, texts: Sequence[str]) -> None:
        """Add texts at the end."""
        sentences: list[str] = []
        places: list[int] = []
        for place, text in enumerate(texts, self._count):
            own = list(_sentences(text))
            sentences += own
            places += [place] * len(own)
        rows = self._vectors.of(sentences)
        self._rows = np.concatenate([self._rows, rows])
        self._lengths = np.concatenate([self._lengths, _lengths(rows)])
        self._texts = np.concatenate([self._texts, np.array(places, np.int32)])
        self._count += len(texts)
        self.size = self._rows.nbytes + self._lengths.nbytes + self._texts.nbytes

    def nearest(self, question: str, count: int, most: int) -> list[tuple[int, float]]:
        """Return the places and similarities of those of the first ``count`` texts that are most like a question.

        The best comes first, the older one of equal ones, and none is below ``LEAST_SIMILARITY``. A text is as like the
        question as its best sentence is.
        """
        end = int(np.searchsorted(self._texts, count))
        similarities = _similarities(self._rows[:end], self._lengths[:end], self._vectors.of([question])[0])
        alike = np.flatnonzero(similarities >= LEAST_SIMILARITY)
        best: dict[int, float] = {}
        for row in alike[np.argsort(-similarities[alike], kind="stable")].tolist():
            if len(best) >= most:
                break
            best.setdefault(int(self._texts[row]), float(similarities[row]))
        return list(best.items())

    def likeness(self, question: str, texts: Sequence[str]) -> float:
        """Return the similarity of a question and the text that is most like it; 0 where there is no text."""
        rows = self._vectors.cached(sentence for text in texts for sentence in _sentences(text))
        if not len(rows):
            return 0.0
        return float(_similarities(rows, _lengths(rows), self._vectors.of([question])[0]).max())


def _sentences(text: str) -> Iterator[str]:
    """Yield a text's sentences and lines."""
    count = 0
    for sentence in _SENTENCE_END.split(text[:MOST_CHARS]):
        if count < MOST_SENTENCES and sentence.strip():
            count += 1
            yield sentence


def _lengths(rows: NDArray[np.int8]) -> NDArray[np.float32]:
    whole = rows.astype(np.float32)
    lengths: NDArray[np.float32] = np.sqrt((whole * whole).sum(axis=1))
    return lengths


def _similarities(
    rows: NDArray[np.int8], lengths: NDArray[np.float32], question: NDArray[np.int8]
) -> NDArray[np.float32]:
    """Return the cosine of each row and a question. The products and sums of whole numbers are exact."""
    asked = question.astype(np.float32)
    products: NDArray[np.float32] = rows.astype(np.float32) @ asked
    cosines: NDArray[np.float32] = products / np.maximum(lengths * np.sqrt(asked @ asked), np.float32(1))
    return cosines
