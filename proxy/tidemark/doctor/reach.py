"""Asks the configured addresses whether they can be reached, for ``tidemark check``.

One request goes to each address, for its list of models, without a key. Whatever it answers, it can be reached.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing

from tidemark.config import Settings
from tidemark.core.errors import TidemarkError, UpstreamUnreachable
from tidemark.core.ports import NO_CREDENTIAL, Route
from tidemark.upstream.wire import WireLane

REACH_SECONDS = 3.0
"""The most time for all addresses; one that is slower is left to ``tidemark doctor``."""
MOST_ADDRESSES = 32


async def reach_warnings(settings: Settings) -> list[str]:
    """Return a warning for each configured address that cannot be reached."""
    async with aclosing(WireLane()) as lane:
        examined = [_warning(lane, route) for route in list(_routes(settings))[:MOST_ADDRESSES]]
        return [warning for warning in await asyncio.gather(*examined) if warning]


def _routes(settings: Settings) -> Iterator[Route]:
    """Yield a route to each address that the configuration states, under the first model's name there."""
    stated: dict[str, str] = {}
    for entry in settings.model_list:
        params = entry.litellm_params
        address = params.get("api_base") or params.get("base_url")
        if isinstance(address, str):
            stated.setdefault(address, entry.name)
    if settings.upstream:
        stated.setdefault(str(settings.upstream), "any other model" if settings.model_list else "any model")
    for address, name in stated.items():
        yield Route("wire", name, name, "openai", address)


async def _warning(lane: WireLane, route: Route) -> str:
    try:
        async with asyncio.timeout(REACH_SECONDS):
            reply = await lane.forward(route, "GET", "/models", b"", NO_CREDENTIAL)
            await reply.close()
    except UpstreamUnreachable as error:
        return str(error)
    except (TimeoutError, TidemarkError):
        return ""
    return ""
