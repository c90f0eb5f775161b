"""Says in one line what a server's requests cost while a command ran, by the server's own bill."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from tidemark.core.errors import TidemarkError
from tidemark.features.bill.commands import dollars
from tidemark.terminal.http_client import request

PATH = "/tidemark/gain?since=400d"
"""All days: the sums of two readings differ by what came between them, also over midnight."""
Gain = Mapping[str, Any]
"""What the server answers there."""


def read_gain(url: str) -> Gain | None:
    """Return a server's bill of all days; None if it does not give it, as to no operator."""
    server = {"url": url, "config": None, "operator": bool(os.environ.get("TIDEMARK_ADMIN_TOKEN"))}
    try:
        gain: Gain = json.loads(b"".join(request(server, "GET", PATH)))
    except (TidemarkError, ValueError):
        return None
    return gain


def bill_between(before: Gain | None, after: Gain | None) -> str:
    """Return a part of a line for a person; empty if no upstream has counted, or a bill is missing."""
    if before is None or after is None or not (tokens := _more(before, after, "input_tokens")):
        return ""
    share = _more(before, after, "cached_tokens") / tokens
    text = f"; upstreams read {tokens:,} tokens ({share:.0%} from a cache) and wrote "
    text += f"{_more(before, after, 'output_tokens'):,}{_money(before, after)}"
    earlier = {row["model"]: row["unpriced_requests"] for row in before["data"]}
    names = [row["model"] for row in after["data"] if row["unpriced_requests"] > earlier.get(row["model"], 0)]
    return text + (f", no known price for {', '.join(sorted(names))}" if names else "")


def _money(before: Gain, after: Gain) -> str:
    """Return what was paid, and how much more or less that is than uncompacted; empty if nothing has a price."""
    paid = _more(before, after, "paid_usd")
    if not paid:
        return ""
    if _more(before, after, "unknown_summaries"):
        return f" for {dollars(paid)}, summaries of unknown cost apart"
    saved = round(_more(before, after, "uncompacted_usd") - paid, 9)
    words = f", {dollars(abs(saved))} {'more' if saved < 0 else 'less'} than uncompacted" if saved else ""
    return f" for {dollars(paid)}{words}"


def _more(before: Gain, after: Gain, name: str) -> Any:
    return (after[name] or 0) - (before[name] or 0)
