"""Digests of tools are stored, so they stay what they are, however the tools are read."""

from __future__ import annotations

import json
from base64 import b64encode
from hashlib import blake2b

from tidemark.core.conversation.sent_prompts import DIGEST_CHARACTERS, MOST_PARTS, tool_digests


def test_the_last_of_very_many_tools_have_one_digest_together() -> None:
    """It is that of their JSON as a whole, half a character and another alphabet included."""
    tools = [{"name": f"f{number}", "description": "é \ud83d", "strict": True} for number in range(MOST_PARTS + 3)]
    rest = json.dumps(tools[MOST_PARTS:]).encode()
    digest = b64encode(blake2b(rest, digest_size=DIGEST_CHARACTERS * 3 // 4).digest())
    assert tool_digests(tools).endswith(digest)
    assert not tool_digests([*tools[:-1], {"name": "other"}]).endswith(digest)
