"""Posts entries, signed, to a URL of the operator.

It is a consumer of the flush queue. Only the status of the answer counts: any 2xx takes the entry.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable

import aiohttp

from tidemark.core.errors import FlushNotTaken
from tidemark.core.ports import FlushEntry

SIGNATURE = "Tidemark-Signature"
"""``t=UNIX_SECONDS,v1=HEX``: HMAC-SHA256 by the secret over ``UNIX_SECONDS.BODY``."""
FRESH_SECONDS = 300
"""A receiver rejects an older signature, so that nobody can send a recorded request again later."""
MAX_DIGITS = 9
"""Digits of the seconds in ``Retry-After``: thirty years. A longer number is an error, and a very long one would be
infinite."""


def signature(secret: bytes, body: bytes, now: int) -> str:
    """Return the value of the header ``Tidemark-Signature``."""
    digest = hmac.new(secret, b"%d." % now + body, hashlib.sha256).hexdigest()
    return f"t={now},v1={digest}"


def retry_after(value: str) -> float:
    """Return the seconds of a ``Retry-After`` (RFC 9110, section 10.2.3); 0 for a date and for an invalid value."""
    return float(value) if value.isascii() and value.isdecimal() and len(value) <= MAX_DIGITS else 0.0


class Webhook:
    """Posts entries. The mutable state is its connections.

    :param url: the receiver; redirects are not followed, since the signature is for this receiver only
    :param clock: Unix time in seconds
    :param name: the consumer's name; ``event`` is the value of ``Tidemark-Event``
    """

    def __init__(
        self,
        url: str,
        secret: bytes,
        *,
        timeout_seconds: float,
        clock: Callable[[], float],
        name: str = "webhook",
        event: str = "memory_flush",
    ) -> None:
        self.name = name
        self._event = event
        self._url = url
        self._secret = secret
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None

    def __repr__(self) -> str:
        return "Webhook(secret=***)"

    async def deliver(self, entry: FlushEntry, attempt: int) -> None:
        """Post an entry.

        :raises FlushNotTaken: there was no answer, or it was not 2xx
        """
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "tidemark",
            "Idempotency-Key": entry.key,
            "Tidemark-Event": self._event,
            "Tidemark-Attempt": str(attempt),
            SIGNATURE: signature(self._secret, entry.body, int(self._clock())),
        }
        if self._session is None:
            # No cookies: an answer must not change the next request.
            self._session = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), timeout=self._timeout)
        try:
            async with self._session.post(self._url, data=entry.body, headers=headers, allow_redirects=False) as answer:
                if 200 <= answer.status < 300:
                    return
                wait = retry_after(answer.headers.get("Retry-After", ""))
                raise FlushNotTaken(f"the webhook answered {answer.status}", retry_after=wait)
        except TimeoutError as error:
            raise FlushNotTaken("the webhook did not answer in time") from error
        except (aiohttp.ClientError, OSError) as error:
            raise FlushNotTaken(f"the webhook could not be reached: {type(error).__name__}") from error

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
