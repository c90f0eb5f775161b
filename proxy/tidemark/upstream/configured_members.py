"""Writes the request parameters of an entry into the bodies of the wire lane.

An entry with ``temperature`` or ``extra_body`` would else need litellm, at many times the CPU. The rule is LiteLLM's:
what the client states comes first, but ``extra_body`` replaces members that OpenAI's SDK has arguments for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.ports import ConfiguredMembers
from tidemark.dialects.bodies import body_of, encode_json
from tidemark.dialects.raw_json import read_members
from tidemark.upstream.fields import BESIDE_BODIES, BESIDE_OPENAIS, CHAT_FIELDS, CONFIGURED_FOR_LITELLM, SERVER_FIELDS

STATED = (CHAT_FIELDS | SERVER_FIELDS) - {"messages", "stream_options", "thinking"}
"""Parameters that become members of the request under their own names."""
LEFT_OUT, EXTRA_BODY = "additional_drop_params", "extra_body"
WRITABLE = STATED | {LEFT_OUT, EXTRA_BODY}
"""Parameters of an entry that need no litellm."""
OF_TEXT_COMPLETIONS = SERVER_FIELDS | {
    "frequency_penalty",
    "logit_bias",
    "max_tokens",
    "n",
    "presence_penalty",
    "seed",
    "stop",
    "temperature",
    "top_k",
    "top_p",
    "user",
}
"""Those that ``/v1/completions`` takes, too."""
NEVER_LEFT_OUT = frozenset({"messages", "model"})
OPENAIS = CHAT_FIELDS - BESIDE_OPENAIS
REPLY_BOUNDS = frozenset({"max_tokens", "max_completion_tokens"})
"""Two names of one bound: if the client states one, the entry's is not written."""
NULL = b"null"


def members_of(params: Mapping[str, JsonValue]) -> ConfiguredMembers | None:
    """Return what an entry's parameters make of each request; None if they change nothing."""
    extra, names = params.get(EXTRA_BODY), params.get(LEFT_OUT)
    extra = extra if isinstance(extra, Mapping) else {}
    left_out = frozenset(map(str, names)) - NEVER_LEFT_OUT if isinstance(names, list) else frozenset[str]()
    members = ConfiguredMembers(
        {name: encode_json(value) for name, value in params.items() if name in STATED - left_out and value is not None},
        {str(name): encode_json(value) for name, value in extra.items() if name not in left_out},
        left_out,
    )
    return members if members.stated or members.extra_body or members.left_out else None


def are_writable(params: Mapping[str, JsonValue], *, renamed: bool) -> bool:
    """Return whether the wire lane can apply all of an entry's request parameters.

    :param renamed: whether litellm writes some of them in other words for this provider
    """
    left_out = params.get(LEFT_OUT)
    if isinstance(left_out, list) and any(mark in str(name) for name in left_out for mark in ".["):  # paths of litellm
        return False
    if params.keys() - WRITABLE - CONFIGURED_FOR_LITELLM - BESIDE_BODIES:  # litellm knows whether it is for the body
        return False
    return CONFIGURED_FOR_LITELLM & params.keys() <= ({LEFT_OUT, EXTRA_BODY} if renamed else WRITABLE)


def with_members(body: bytes, members: ConfiguredMembers) -> bytes:
    """Return a request with the configured members; those that nothing is said of keep their bytes.

    :raises InvalidRequest: the body is not a JSON object
    """
    fields = {name: raw for name, raw in read_members(body, bounded=False).items() if name not in members.left_out}
    added = {name: raw for name, raw in members.stated.items() if _is_free(name, fields)}
    own = {name: raw for name, raw in members.extra_body.items() if name in OPENAIS}
    extra = {name: raw for name, raw in members.extra_body.items() if _is_free(name, fields)}
    return body_of(fields, {**extra, **added, **own})


def carried_with(body: bytes, path: str, members: ConfiguredMembers) -> bytes:
    """Return the body of a request that is carried, with the members that its endpoint takes.

    :param path: below the base URL, with its query
    :raises InvalidRequest: the body is not a JSON object
    """
    match path.partition("?")[0]:
        case "/completions":
            stated = {name: raw for name, raw in members.stated.items() if name in OF_TEXT_COMPLETIONS}
            return with_members(body, replace(members, stated=stated))
        case "/embeddings" | "/rerank":
            return with_members(body, replace(members, stated={}))
        case _:
            return body


def _is_free(name: str, fields: Mapping[str, bytes]) -> bool:
    """Return whether the client leaves a parameter to the entry: it is missing, or null as in LiteLLM."""
    names = REPLY_BOUNDS if name in REPLY_BOUNDS else (name,)
    return all(fields.get(same, NULL) == NULL for same in names)
