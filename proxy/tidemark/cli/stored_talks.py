"""Fetches the caller's stored conversations from a running server, for ``tidemark bench fidelity --stored``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from tidemark.terminal.http_client import request

if TYPE_CHECKING:
    from tidemark.fidelity import ExportedConversation

PATH = "/tidemark/conversations"
PAGE = 200
"""The most entries that the server lists at once."""


def stored_conversations(server: Mapping[str, Any], count: int) -> Iterator[ExportedConversation]:
    """Yield the conversations that were used last, without messages that cannot be read.

    :raises ServerRefusal: the server refuses, or does not answer
    """
    from tidemark.fidelity import ExportedConversation

    for entry in _entries(server, count):
        export = b"".join(request(server, "GET", f"{PATH}/{quote(entry['id'], safe='')}/export"))
        lines = [line for line in export.split(b"\n") if line.strip()]
        messages = [line for line in lines if "role" in json.loads(line)]
        yield ExportedConversation(entry["id"], entry["model"], messages)


def _entries(server: Mapping[str, Any], count: int) -> Iterator[Mapping[str, Any]]:
    cursor = None
    while count > 0:
        query = {"limit": min(count, PAGE)} | ({"cursor": cursor} if cursor else {})
        page = json.loads(b"".join(request(server, "GET", f"{PATH}?{urlencode(query)}")))
        yield from page["data"]
        count -= len(page["data"])
        if not page["has_more"]:
            return
        cursor = page["next_cursor"]
