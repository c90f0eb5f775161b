"""The webhook: an entry is posted, signed, to an address of the operator's.

A consumer of the flush queue; one of the doors to aiohttp. What counts is the status alone: any 2xx takes the entry.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable

import aiohttp

from proxy.core.errors import FlushNotTaken
from proxy.core.ports import FlushEntry

SIGNATURE = "Tidemark-Signature"
"""``t=UNIX_SECONDS,v1=HEX``: HMAC-SHA256 by the secret over ``UNIX_SECONDS.BODY``."""
FRESH_SECONDS = 300
"""A receiver takes no signature that is older, so that nobody can send it once more later."""


def signature(secret: bytes, body: bytes, now: int) -> str:
    """The value of the header."""
    digest = hmac.new(secret, b"%d." % now + body, hashlib.sha256).hexdigest()
    return f"t={now},v1={digest}"


class Webhook:
    """Posts entries. The mutable state is its connections.

    :param url: of the receiver; redirects are not followed, as the signature is for this one
    :param clock: Unix time in seconds
    """

    name = "webhook"

    def __init__(self, url: str, secret: bytes, *, timeout_seconds: float, clock: Callable[[], float]) -> None:
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
            "Tidemark-Event": "memory_flush",
            "Tidemark-Attempt": str(attempt),
            SIGNATURE: signature(self._secret, entry.body, int(self._clock())),
        }
        if self._session is None:
            # No cookies: nothing that one answer says may change the next request.
            self._session = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), timeout=self._timeout)
        try:
            async with self._session.post(self._url, data=entry.body, headers=headers, allow_redirects=False) as answer:
                if 200 <= answer.status < 300:
                    return
                asked = answer.headers.get("Retry-After", "")
                wait = float(asked) if asked.isdecimal() else 0.0
                raise FlushNotTaken(f"the webhook answered {answer.status}", retry_after=wait)
        except TimeoutError as error:
            raise FlushNotTaken("the webhook did not answer in time") from error
        except (aiohttp.ClientError, OSError) as error:
            raise FlushNotTaken(f"the webhook could not be reached: {type(error).__name__}") from error

    async def aclose(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None
