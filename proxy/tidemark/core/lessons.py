"""What upstreams took and refused, as their answers taught.

The words of an answer may come from the text of one client: a firewall refuses what somebody wrote, and an error quotes
it. So each lesson belongs to one credential and ends some day, and a success outweighs a refusal.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from tidemark.core.bounded import BoundedCache
from tidemark.core.ports.clocks import Clock

LESSON_SECONDS = 600.0
"""How long a lesson holds: a server may have been updated."""
REMEMBERED = 10_000
"""The most lessons of one kind; losing one costs one refused request."""

K = TypeVar("K", bound=Hashable)


class Lessons(Generic[K]):
    """Remembers what upstreams accept, by credential and by the question.

    :param clock: seconds, of any origin
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._noted: BoundedCache[tuple[bytes, K], tuple[bool, float]] = BoundedCache(REMEMBERED)
        """Whether it was taken, and when that ends to be known."""

    def of(self, credential: bytes, subject: K) -> bool | None:
        """Return whether an upstream takes something; None if nobody knows.

        :param credential: the caller's fingerprint
        """
        is_taken, until = self._noted.get((credential, subject), (None, 0.0))
        return is_taken if is_taken is not None and self._clock() < until else None

    def refuses(self, credential: bytes, subject: K) -> bool:
        return self.of(credential, subject) is False

    def note_taken(self, credential: bytes, subject: K) -> None:
        """Note that an upstream has answered with success."""
        self._noted.put((credential, subject), (True, self._clock() + LESSON_SECONDS))

    def note_refused(self, credential: bytes, subject: K) -> bool:
        """Note that an upstream has refused, and return whether that is to be believed.

        It is not if the upstream took the same before: then the refusal is about this one request.
        """
        if self.of(credential, subject):
            return False
        self._noted.put((credential, subject), (False, self._clock() + LESSON_SECONDS))
        return True
