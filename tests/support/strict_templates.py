"""Chat templates that take less than most, and upstreams that refuse by their rules."""

from __future__ import annotations

import json

from tests.support.answers import SSE_HEADERS, Answer, Received, Script
from tests.support.chat_answers import error
from tests.support.scripted import says

_TURN = "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
_END = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
_REST = "{% set rest = messages[1:] if messages[0].role == 'system' else messages %}"

LENIENT = "{% for m in messages %}" + _TURN + "{% endfor %}" + _END
FIRST_ONLY = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
    "{{ raise_exception('System message must be at the beginning.') }}{% endif %}" + _TURN + "{% endfor %}" + _END
)
"""As Qwen's since 3.5."""
ALTERNATING = (
    _REST + "{% for m in rest %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "<|im_start|>{{ m.role }}\n{% if loop.first and rest != messages %}{{ messages[0].content }}\n\n{% endif %}"
    "{{ m.content }}<|im_end|>\n{% endfor %}" + _END
)
"""As Gemma's and Mistral's."""
DROPPING = (
    _REST + "{% if rest != messages %}<|im_start|>system\n{{ messages[0].content }}<|im_end|>\n{% endif %}"
    "{% for m in rest %}{% if m.role in ('user', 'assistant') %}" + _TURN + "{% endif %}{% endfor %}" + _END
)
"""As that of gpt-oss."""
LAST_ONLY = (
    "{% set ns = namespace(rules='') %}{% for m in messages %}{% if m.role == 'system' %}"
    "{% set ns.rules = m.content %}{% endif %}{% endfor %}{{ ns.rules }}\n"
    "{% for m in messages %}{% if m.role != 'system' %}" + _TURN + "{% endif %}{% endfor %}" + _END
)
"""As that of DeepSeek-R1's small relatives."""


def alternates(request: Received) -> Answer:
    """Answer only if one system message at most comes first, and then users and assistants take turns."""
    roles = [message["role"] for message in request.json["messages"]]
    turns = roles[1:] if roles[:1] == ["system"] else roles
    if any((role == "user") != (place % 2 == 0) for place, role in enumerate(turns)):
        return error(400, "Jinja Exception: Conversation roles must alternate user/assistant/user/assistant/...")
    return says("Noted.")(request)


def in_streams(script: Script) -> Script:
    """Refuse streamed requests as LM Studio does: with status 200, in the only event."""

    def answer(request: Received) -> Answer:
        told = script(request)
        if told.status == 200 or not request.streams:
            return told
        refusal = json.loads(b"".join(piece for piece in told.pieces if isinstance(piece, bytes)))
        return Answer([f"event: error\ndata: {json.dumps(refusal)}\n\n".encode()], headers=list(SSE_HEADERS))

    return answer
