"""Renders stored responses, lists of their input items and compacted conversations as JSON.

The endpoints of stored responses call it (``endpoints.py``). Source: OpenAI API reference, "Responses"; types
of the official SDK, ``ResponseItemList`` and ``CompactedResponse``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from tidemark.core.conversation.messages import JsonValue

ID_CHARACTERS = 32
_WITH_STATUS = ("message", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output")
"""Items that a list shows with a ``status``."""


def response_object(members: Mapping[str, bytes]) -> bytes:
    """Write a response object of its raw members."""
    return b"{" + b",".join([json.dumps(name).encode() + b":" + raw for name, raw in members.items()]) + b"}"


def input_item_list(items: Sequence[Mapping[str, Any]], *, has_more: bool) -> dict[str, JsonValue]:
    """Return a page of input items."""
    names = [item["id"] for item in items] or [""]
    return {"object": "list", "data": list(items), "first_id": names[0], "last_id": names[-1], "has_more": has_more}


def listed_items(raws: Sequence[bytes], response: str) -> list[dict[str, Any]]:
    """Return input items as a list shows them: each with an id, and messages with a list of parts.

    :param response: the id of their response, from which ids are made for items that came without one
    """
    return [_listed(json.loads(raw), f"{response}:{place}") for place, raw in enumerate(raws)]


def shown_item(raw: bytes, identifier: str) -> dict[str, Any]:
    """Return an item as a list shows it, with the id that it is stored under."""
    return _listed({**json.loads(raw), "id": identifier}, identifier)


def _listed(item: dict[str, Any], seed: str) -> dict[str, Any]:
    kind = item.get("type") or "message"
    prefix = "msg" if kind == "message" else "item"
    listed = {"id": item.get("id") or f"{prefix}_{_hex(seed)}", **item, "type": kind}
    if not isinstance(listed["id"], str):
        listed["id"] = f"{prefix}_{_hex(seed)}"
    if kind in _WITH_STATUS:
        listed["status"] = item.get("status") or "completed"
    if kind == "message" and isinstance(item.get("content"), str):
        listed["content"] = [_text_part(item["content"], item.get("role"))]
    return listed


def _text_part(text: str, role: object) -> dict[str, JsonValue]:
    if role == "assistant":
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "input_text", "text": text}


def compacted_conversation(
    items: Sequence[bytes], sealed: str, *, identifier: str, created_at: float, input_tokens: int, output_tokens: int
) -> dict[str, JsonValue]:
    """Return the answer to a compaction: what the client sends from now on in place of its conversation.

    :param items: the user's messages
    :param sealed: the summary of everything else
    :param identifier: random hex characters, for the ids
    """
    compaction = {"id": f"cmp_{identifier}", "type": "compaction", "encrypted_content": sealed}
    return {
        "id": f"resp_{identifier}",
        "object": "response.compaction",
        "created_at": int(created_at),
        "output": [*listed_items(items, identifier), compaction],
        "usage": {
            "input_tokens": input_tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": input_tokens + output_tokens,
        },
    }


def _hex(seed: str) -> str:
    return hashlib.sha256(seed.encode()).hexdigest()[:ID_CHARACTERS]
