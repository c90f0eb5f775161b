"""Whatever tenants send, and whatever ids of others they know: nobody gets a word of anybody else."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest

from tests.request.conftest import litellm, store_url
from tests.security.asking import ask
from tests.security.crowd import WORD, Crowd, GossipingUpstream, Tenant, words_in
from tests.support.logs import logging_put_back
from tests.support.serving import Serving
from tidemark.app.application import create_app
from tidemark.app.features import descriptions
from tidemark.config import load
from tidemark.server.describing import Operation
from tidemark.server.endpoints.description import OPERATIONS
from tidemark.telemetry.logging import configure

__all__ = ["litellm", "store_url"]
pytestmark = [pytest.mark.security, pytest.mark.timeout(7200)]

TENANTS = 500
REQUESTS = int(os.environ.get("TIDEMARK_TENANT_REQUESTS", "30000"))
SECONDS = float(os.environ.get("TIDEMARK_FUZZ_SECONDS", "0"))
"""How long it may take; 0 is no limit."""
SEED = int(os.environ.get("TIDEMARK_SEED", "1"))
AT_ONCE = 12
LISTENERS, OTHERS = 8, 0.9
"""Tenants that listen to live events all the time, and the share of requests that are anybody's."""
ADMIN = "an admin token that no tenant has"
CONFIG = """
upstream: {base}
model_list:
  - model_name: small
    litellm_params: {{model: openai/scripted, api_base: "{base}"}}
    model_info: {{max_input_tokens: 2000, max_output_tokens: 200}}
  - model_name: shared
    litellm_params: {{model: openai/shared, api_base: "{base}", api_key: sk-of-the-operator}}
    model_info: {{max_input_tokens: 2000, max_output_tokens: 200}}
compaction:
  defaults: {{strategy: extractive, retention_tokens: 200, min_tokens: 300}}
auth: {{shared_account: false}}
"""
PAGES = tuple(
    Operation(method="GET", path=path, summary="", access="operator", answers={})
    for path in ("/console", "/console/conversations", "/console/models", "/console/settings")
)
EVENT_SECONDS = 3
"""An event is so old at most when it comes."""
ENDLESS = "/tidemark/events"


@pytest.fixture
def log() -> Iterator[StringIO]:
    """All log lines of the process."""
    stream = StringIO()
    with logging_put_back():
        configure("debug", json=True, stream=stream)
        yield stream


async def drive(app: object, crowd: Crowd) -> tuple[int, Counter[int]]:
    """Let many tenants ask at once until all requests are sent; returns how many were, and the statuses."""
    statuses: Counter[int] = Counter()
    end = time.monotonic() + SECONDS if SECONDS else None
    left = REQUESTS

    async def one_after_the_other() -> None:
        nonlocal left
        while left > 0 and (end is None or time.monotonic() < end):
            left -= 1
            tenant: Tenant = crowd.chance.choice(
                crowd.tenants if crowd.chance.random() < OTHERS else crowd.tenants[:LISTENERS]
            )
            operation, path, query, lines, body = crowd.request(tenant)
            got = await ask(app, operation.method, path, query=query, headers=lines, body=body)
            statuses[got.status] += 1
            foreign = crowd.look(tenant, operation, got)
            request = f"{operation.method} {path}?{query} {lines} {body[:2000]!r}, after {REQUESTS - left:,} others"
            assert not foreign, f"{foreign} reached {tenant.word} by {request}: {got.status} {got.text[:3000]}"
            assert got.status != 500, f"{request}: {got.text[:2000]}"

    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(one_after_the_other())
    return REQUESTS - left, statuses


async def listen(app: object, tenant: Tenant, leave: asyncio.Event, heard: dict[str, str]) -> None:
    """Add to ``heard`` all that a tenant's live events say; a stream ends by itself after ten minutes."""
    while not leave.is_set():
        got = await ask(app, "GET", ENDLESS, headers=[tenant.line], leave=leave)
        assert got.status == 200, got.text
        heard[tenant.secret] = heard.get(tenant.secret, "") + got.text


async def test_no_word_of_a_tenant_reaches_another(store_url: str, tmp_path: Path, log: StringIO) -> None:
    """In no answer, header, metric, log line, live event or request to an upstream, with 500 tenants."""
    upstream = GossipingUpstream()
    operations = [each for each in [*OPERATIONS, *descriptions(), *PAGES] if each.path != ENDLESS]
    crowd = Crowd(TENANTS, operations, SEED)
    with Serving(upstream) as served:
        (tmp_path / "tidemark.yaml").write_text(CONFIG.format(base=f"{served.url}/v1"))
        environ = {"TIDEMARK_DATA_DIR": str(tmp_path), "TIDEMARK_ADMIN_TOKEN": ADMIN}
        settings = load(tmp_path / "tidemark.yaml", environ)
        app = create_app(settings, store_url=store_url, secret=b"s" * 40, warn=lambda _: None)
        async with app.router.lifespan_context(app):
            leave, heard = asyncio.Event(), dict[str, str]()
            started = time.monotonic()
            async with asyncio.TaskGroup() as tasks:
                for tenant in crowd.tenants[:LISTENERS]:
                    tasks.create_task(listen(app, tenant, leave, heard))
                count, statuses = await drive(app, crowd)
                await asyncio.sleep(EVENT_SECONDS)
                leave.set()
            seconds = time.monotonic() - started
            metrics = await ask(app, "GET", "/metrics")
    print(f"{count:,} requests of {TENANTS} tenants in {seconds:.0f} s ({count / seconds:.0f} a second): {statuses}")
    assert upstream.mixed == []
    assert WORD.findall(metrics.text) == []
    assert WORD.findall(log.getvalue()) == []
    for secret, text in heard.items():
        conversations = set(re.findall(r'"conversation": "(\w+)"', text))
        assert conversations, "a tenant that listens hears of its own conversations"
        assert {crowd.owners.get(each, secret) for each in conversations} == {secret}
        assert words_in(text) == set()
    assert crowd.kinds() >= {"talk", "response", "kept", "item", "file", "message", "preview", "cursor", "sealed"}
    assert statuses[200] > count / 4, "the requests are refused, so they prove little"
