"""The webhook: signed, with an idempotency key, and what is not 2xx is not taken."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.features.memory_flush.conftest import entry
from tests.support.serving import Serving
from tidemark.core.errors import FlushNotTaken
from tidemark.delivery.webhook import FRESH_SECONDS, Webhook, retry_after

SECRET = b"a secret of the tests"
NOW = 1_700_000_000


class Receiver:
    """Somebody's server: answers with the statuses of a list, then with 204."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.headers: dict[str, str] = {}
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.slow_seconds = 0.0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        body, more = b"", True
        while more:
            part = await receive()
            body, more = body + part.get("body", b""), part.get("more_body", False)
        self.got.append(({name.decode(): value.decode() for name, value in scope["headers"]}, body))
        await asyncio.sleep(self.slow_seconds)
        status = self.statuses.pop(0) if self.statuses else 204
        lines = [(name.encode(), value.encode()) for name, value in self.headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": lines})
        await send({"type": "http.response.body", "body": b"whatever"})


@pytest.fixture
def receiver() -> Receiver:
    """A receiver that takes everything."""
    return Receiver()


@pytest.fixture
def url(receiver: Receiver) -> Iterator[str]:
    """Its address."""
    with Serving(receiver) as served:
        yield f"{served.url}/hooks/memory"


@pytest.fixture
async def webhook(url: str, anyio_backend: str) -> AsyncIterator[Webhook]:
    """The consumer."""
    made = Webhook(url, SECRET, timeout_seconds=1, clock=lambda: NOW)
    yield made
    await made.aclose()


def verified(secret: bytes, header: str, body: bytes, now: float) -> bool:
    """What ``docs/memory-flush.md`` tells receivers to do."""
    fields = dict(part.split("=", 1) for part in header.split(","))
    expected = hmac.new(secret, fields["t"].encode() + b"." + body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected, fields["v1"]) and abs(now - int(fields["t"])) <= FRESH_SECONDS


async def test_what_is_posted_is_the_document_signed(webhook: Webhook, receiver: Receiver) -> None:
    """Byte by byte; another body, another secret and a later time do not fit the signature."""
    await webhook.deliver(entry(1), 3)
    ((headers, body),) = receiver.got
    assert body == entry(1).body
    assert headers["idempotency-key"] == entry(1).key
    assert headers["content-type"] == "application/json"
    assert headers["tidemark-event"] == "memory_flush"
    assert headers["tidemark-attempt"] == "3"
    signed = headers["tidemark-signature"]
    assert verified(SECRET, signed, body, NOW)
    assert not verified(SECRET, signed, body + b" ", NOW)
    assert not verified(b"another", signed, body, NOW)
    assert not verified(SECRET, signed, body, NOW + FRESH_SECONDS + 1)


@pytest.mark.parametrize("status", [301, 400, 401, 404, 409, 410, 429, 500, 503])
async def test_every_other_answer_is_offered_again(webhook: Webhook, receiver: Receiver, status: int) -> None:
    """A 4xx too: at-least-once is no promise where a receiver's mistake of a minute loses an entry."""
    receiver.statuses = [status]
    receiver.headers = {"location": "/elsewhere"}
    with pytest.raises(FlushNotTaken, match=str(status)):
        await webhook.deliver(entry(1), 1)
    assert len(receiver.got) == 1, "no redirect is followed"


@pytest.mark.parametrize("nonsense", ["9" * 400, "1" * 10, "-1", "1.5", "inf", "\u0664", ""])
def test_a_retry_after_of_nonsense_asks_for_nothing(nonsense: str) -> None:
    """Four hundred digits were an infinite wait."""
    assert retry_after(nonsense) == 0
    assert retry_after("120") == 120


async def test_the_receiver_may_ask_for_time(webhook: Webhook, receiver: Receiver) -> None:
    """``Retry-After`` in seconds; anything else in it is passed over."""
    receiver.statuses, receiver.headers = [429], {"retry-after": "17"}
    with pytest.raises(FlushNotTaken) as refused:
        await webhook.deliver(entry(1), 1)
    assert refused.value.retry_after == 17
    receiver.statuses, receiver.headers = [503], {"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}
    with pytest.raises(FlushNotTaken) as refused:
        await webhook.deliver(entry(1), 1)
    assert refused.value.retry_after == 0


async def test_a_receiver_that_is_slow_or_gone_has_not_taken_it(webhook: Webhook, receiver: Receiver) -> None:
    """Told without its address, which may hold a token."""
    receiver.slow_seconds = 5
    with pytest.raises(FlushNotTaken, match="in time"):
        await webhook.deliver(entry(1), 1)
    gone = Webhook("http://127.0.0.1:1/token", SECRET, timeout_seconds=1, clock=lambda: NOW)
    with pytest.raises(FlushNotTaken, match="could not be reached") as refused:
        await gone.deliver(entry(1), 1)
    await gone.aclose()
    assert "token" not in str(refused.value)
    assert "secret" not in repr(gone).replace("secret=***", "")
