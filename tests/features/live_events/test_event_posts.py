"""``events.webhook``: live events come to the operator's receiver as signed posts."""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import httpx

from tests.features.live_events.test_live_events import WAIT_SECONDS
from tests.request.conftest import SECRET, Bench, Client
from tests.request.talk import history
from tests.support.serving import NO_TLS, Serving
from tests.support.waiting import wait_until
from tidemark.app.application import create_app
from tidemark.config import load
from tidemark.store.embedded.server import EmbeddedValkey

SIGNING = "a secret of the receiver's"
CONFIG = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/scripted, api_base: "{base}/v1"}}
    model_info: {{max_input_tokens: 2000, max_output_tokens: 200}}
compaction:
  defaults: {{strategy: extractive, retention_tokens: 200, min_tokens: 300}}
events: {{webhook: "{hook}/hook"}}
"""


class Receiver:
    """An ASGI application that takes posts; the first one it refuses, as one that is being deployed."""

    def __init__(self) -> None:
        self.posts: list[tuple[dict[str, str], bytes]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Note a post."""
        if scope["type"] == "lifespan":
            return
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.posts.append(({name.decode(): value.decode() for name, value in scope["headers"]}, body))
        await send({"type": "http.response.start", "status": 503 if len(self.posts) == 1 else 204, "headers": []})
        await send({"type": "http.response.body"})


def test_live_events_are_posted_signed_and_again_until_they_are_taken(bench: Bench, tmp_path: Path) -> None:
    """Each post names its key, so that a receiver knows one that it has already."""
    receiver = Receiver()
    path = tmp_path / "posting.yaml"
    with EmbeddedValkey(tmp_path / "store") as store, Serving(receiver) as hook:
        path.write_text(CONFIG.format(base=bench.upstream_url, hook=hook.url))
        settings = load(path, {"TIDEMARK_DATA_DIR": str(tmp_path), "TIDEMARK_FLUSH_SECRET": SIGNING})
        app = create_app(settings, store_url=store.url, secret=SECRET, warn=lambda _: None)
        with Serving(app) as server, httpx.Client(base_url=server.url, timeout=30, verify=NO_TLS) as http:
            answer = Client(http, "posted").chat(history(12), summarize="force")
            wait_until(lambda: "compaction.finished" in kinds(receiver, taken=True), WAIT_SECONDS)
    (headers, first), (again, second) = receiver.posts[:2]
    assert first == second
    assert headers["idempotency-key"] == again["idempotency-key"]
    assert (headers["tidemark-event"], again["tidemark-attempt"]) == ("events", "2")
    time, _, digest = headers["tidemark-signature"].removeprefix("t=").partition(",v1=")
    assert digest == hmac.new(SIGNING.encode(), f"{time}.".encode() + first, hashlib.sha256).hexdigest()
    assert {event["conversation"] for _, body in receiver.posts for event in json.loads(body)["events"]} == {
        answer.headers["x-tidemark-conversation"]
    }


def kinds(receiver: Receiver, *, taken: bool) -> list[str]:
    """The kinds of all events that were posted; ``taken`` leaves out the post that was refused."""
    return [event["event"] for _, body in receiver.posts[taken:] for event in json.loads(body)["events"]]
