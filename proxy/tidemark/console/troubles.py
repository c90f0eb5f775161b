"""The banner of every page: what does not work now, what that means for clients, and what to do.

``app/application.py`` reads the worker's state for each page that the operator or an auditor opens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidemark.console.visit import Trouble

STORE_AWAY = Trouble(
    "The store does not answer.",
    "Requests go on, but none is stored, and long ones are compacted without a model. Check that the store runs and "
    "has space: 'tidemark doctor' and the log say why.",
)
RESTING = (
    "Requests go on with summaries that no model has written. Check the model, its key and its address: the log says "
    "why it failed, and 'tidemark doctor' asks it. It is tried again by itself."
)


def troubles(*, is_store_well: bool, resting: int, eviction: str, replacement: str) -> Sequence[Trouble]:
    """Return what the banner says; nothing if all is well.

    :param resting: summarizers that are not asked now, because they failed three times in a row
    :param eviction: why the store may lose conversations, and the mend
    :param replacement: that the store was emptied or replaced a while ago
    """
    return tuple(_troubles(resting, eviction, replacement)) if is_store_well else (STORE_AWAY,)


def _troubles(resting: int, eviction: str, replacement: str) -> Iterator[Trouble]:
    if resting == 1:
        yield Trouble("A summarizer rests, because it failed three times in a row.", RESTING)
    elif resting:
        yield Trouble(f"{resting} summarizers rest, because each failed three times in a row.", RESTING)
    if eviction:
        yield _of_sentences(eviction)
    if replacement:
        yield _of_sentences(replacement)


def _of_sentences(text: str) -> Trouble:
    """Return what the first sentence of a text says, and what the others do."""
    what, _, then = text.partition(". ")
    return Trouble(f"{what}.", then)
