"""OpenAI's Responses API, as strict as it is: an upstream that refuses what the real one refuses.

It is a script for `tests/support/scripted.py`, and an answer to any `Received`. It is the API of accounts whose data is
not retained: nothing is kept between requests, so one secret serves any number of them, and what a client wants to be
known it must send. Reasoning and compaction items are encrypted for the organization of the API key, the family of the
model and their own id; an item that was made behind reasoning has an id that tells so. Source: OpenAI's guides
"Reasoning models", "Compaction", "Conversation state" and "Function calling", the API reference "Create a model
response" and "Streaming events"; the words of refusals are those that users of Codex and of several SDKs report.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.support.answers import JSON_HEADERS, SSE_HEADERS, Answer, Json, Received, halves, sse
from tests.support.responses_answers import CARRIED, counted

INVALID_CONTENT = "invalid_encrypted_content"
UNVERIFIED = "The encrypted content {which} could not be verified. Reason: {reason}"
UNREADABLE = "Encrypted content could not be decrypted or parsed."
FOREIGN = "Encrypted content organization_id did not match the target organization."
MISPLACED = "Encrypted content item_id did not match the target item id."
UNKNOWN_ITEM = (
    "Item with id '{id}' not found. Items are not persisted when `store` is set to false. Try again with `store` set "
    "to true, or remove this item from your input."
)
UNFOLLOWED = "Item '{id}' of type 'reasoning' was provided without its required following item."
UNREASONED = "Item '{id}' of type '{kind}' was provided without its required 'reasoning' item: '{reasoning}'."
MISPLACED_TRIGGER = "The 'compaction_trigger' item must be the final input item."
CALLS = {"function_call": "function call", "custom_tool_call": "custom tool call"}
"""Types of calls whose results a client sends, and how refusals name them."""
SEALED = ("compaction", "compaction_summary", "context_compaction")
PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc", "compaction": "cmp"}
"""With what the id of an item begins, by its type."""
TRIGGER = "compaction_trigger"
ENCRYPTED = "reasoning.encrypted_content"
"""What ``include`` names where reasoning is to come encrypted."""
_ROLES = ("assistant", "system", "developer", "user")
_MADE = re.compile(r"(?:msg|fc|ctc)_(\w{16})r(\d+)_\d+")
"""The id of an item made behind reasoning: its answer, and the place of that reasoning in it."""
_FERNET = b"\x80\0\0\0\0"
"""With what encrypted content begins, so that its base64 begins as OpenAI's does."""
_FAMILY = re.compile(r"gpt-\d+(?:\.\d+)?|o\d+")
Say = Callable[[Json], Sequence[Json]]
"""Makes the items of an answer, without ids and encrypted content: ``answers_plainly`` shows the members they need."""


class Refusal(Exception):
    """A request that is answered with an error."""

    def __init__(self, message: str, param: str | None = "input", code: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.param, self.code, self.status = param, code, status


def answers_plainly(body: Json) -> Sequence[Json]:
    """Think, and answer."""
    del body
    return [{"type": "reasoning", "summary": []}, message_of("Fine.")]


def message_of(text: str) -> Json:
    """A message of an answer."""
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "message", "role": "assistant", "status": "completed", "content": [part]}


def family_of(model: str) -> str:
    """The family of a model, whose members read each other's items: ``gpt-5.5`` for ``gpt-5.5-codex``."""
    found = _FAMILY.match(model)
    return found[0] if found else model


@dataclass
class EnforcingOpenAI:
    """The API, for any number of organizations."""

    say: Say = answers_plainly
    secret: bytes = b"a secret of the tests"
    organizations: Mapping[str, str] = field(default_factory=dict)
    """The organization of an API key; a key that is not named is one of its own."""
    refusals: list[str] = field(default_factory=list)
    """The messages of every error."""

    def __call__(self, received: Received) -> Answer:
        """Answer a request for a response or a compaction, or count one."""
        if received.method != "POST":  # Codex asks for a WebSocket first
            return Answer([b'{"error": {"message": "Upgrade Required"}}'], 426)
        body, kind = received.json, received.path.rpartition("/responses")[2]
        try:
            items = items_of(body)
            self._check(items, self._owner(received))
        except Refusal as refusal:
            self.refusals.append(str(refusal))
            error = {"message": str(refusal), "type": "invalid_request_error"}
            told = {"error": {**error, "param": refusal.param, "code": refusal.code}}
            return Answer([json.dumps(told).encode()], refusal.status)
        if kind == "/input_tokens":
            return counted(len(received.body) // 4)
        if kind == "/compact":
            return self._compacted(items, received)
        return tell(self._made(body, items, received), received)

    def _owner(self, received: Received) -> list[str]:
        """For whom items are encrypted: the organization and the family of the model."""
        key = received.headers.get("authorization", "").removeprefix("Bearer ")
        return [self.organizations.get(key, key), family_of(received.json["model"])]

    def _check(self, items: Sequence[Json], owner: Sequence[str]) -> None:
        _check_form(items)
        for place, item in enumerate(items):
            if item["type"] == TRIGGER and place < len(items) - 1:
                raise Refusal(MISPLACED_TRIGGER)
        _check_pairs(items)
        made = [self._opened(item, owner) for item in items]
        for place, (item, own) in enumerate(zip(items, made, strict=True)):
            if item["type"] == "reasoning":
                _check_follower(items, place, own)
            elif needed := _MADE.fullmatch(item.get("id") or ""):
                reasoning = f"rs_{needed[1]}_{needed[2]}"
                if reasoning not in made[:place]:
                    raise Refusal(UNREASONED.format(id=item["id"], kind=item["type"], reasoning=reasoning))

    def _opened(self, item: Json, owner: Sequence[str]) -> str:
        """The id under which an item was encrypted; empty for an item that is not."""
        if item["type"] not in ("reasoning", *SEALED):
            return ""
        sealed, own = item.get("encrypted_content"), item.get("id")
        if sealed is None:
            raise Refusal(UNKNOWN_ITEM.format(id=own), status=404)
        which = f"for item {own}" if own else f"{sealed[:4]}...{sealed[-4:]}"
        try:
            *made_for, kind, made, mark = json.loads(base64.urlsafe_b64decode(sealed).removeprefix(_FERNET))
        except ValueError:
            made_for, kind, made, mark = [], "", "", ""
        if not mark or mark != self._mark(*made_for, kind, made):
            raise Refusal(UNVERIFIED.format(which=which, reason=UNREADABLE), None, INVALID_CONTENT)
        wrong = [FOREIGN, UNREADABLE, MISPLACED]
        same = [*(one == other for one, other in zip(made_for, owner, strict=True)), own in (None, made)]
        for reason, is_same in zip(wrong, same, strict=True):
            if not is_same:
                raise Refusal(UNVERIFIED.format(which=which, reason=reason), None, INVALID_CONTENT)
        return str(made)

    def sealed(self, owner: Sequence[str], kind: str, name: str) -> str:
        """The encrypted content of an item."""
        parts = [*owner, kind, name]
        return base64.urlsafe_b64encode(_FERNET + json.dumps([*parts, self._mark(*parts)]).encode()).decode()

    def _mark(self, *parts: str) -> str:
        return hmac.new(self.secret, "\n".join(parts).encode(), hashlib.sha256).hexdigest()[:16]

    def _compaction(self, received: Received) -> Json:
        name = f"cmp_{_digest(received.body)}"
        sealed = self.sealed(self._owner(received), "compaction", name)
        return {"id": name, "type": "compaction", "encrypted_content": sealed}

    def _compacted(self, items: Sequence[Json], received: Received) -> Answer:
        """The answer of ``/responses/compact``: the user's messages, and one item for everything else."""
        users = [
            {"id": f"msg_{_digest(received.body)}_{place}", "status": "completed", **item}
            for place, item in enumerate(items)
            if item.get("role") == "user"
        ]
        output = [*users, self._compaction(received)]
        told = {"id": f"resp_{_digest(received.body)}", "object": "response.compaction", "created_at": 1}
        return Answer([json.dumps({**told, "output": output, "usage": _usage(received)}).encode()])

    def _made(self, body: Json, items: Sequence[Json], received: Received) -> Iterator[Json]:
        """The items of the answer, with ids and encrypted content."""
        if items[-1]["type"] == TRIGGER:
            yield self._compaction(received)
            return
        owner, answer, reasoned = self._owner(received), _digest(received.body), ""
        for place, item in enumerate(self.say(body)):
            name = f"{PREFIXES[item['type']]}_{answer}{reasoned}_{place}"
            if item["type"] != "reasoning":
                yield {"id": name, **item}
                continue
            name, reasoned = f"rs_{answer}_{place}", f"r{place}"
            is_asked = ENCRYPTED in (body.get("include") or ())
            more = {"encrypted_content": self.sealed(owner, "reasoning", name)} if is_asked else {}
            yield {"id": name, **item, **more}


def items_of(body: Json) -> list[Json]:
    """The items of a request; a text is one message, and an item with a role needs no type.

    :raises Refusal: there are none, or the request names what nobody has kept
    """
    earlier, told = body.get("previous_response_id"), body.get("input")
    if earlier is not None:
        message = f"Previous response with id '{earlier}' not found."
        raise Refusal(message, "previous_response_id", "previous_response_not_found")
    if not told:
        message = "One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation_id' must be provided."
        raise Refusal(message, "input", "missing_required_parameter")
    if isinstance(told, str):
        return [{"type": "message", "role": "user", "content": told}]
    return [{"type": "message", **item} if "role" in item else item for item in told]


def tell(items: Iterator[Json], received: Received) -> Answer:
    """A response with these items, streamed or not as asked."""
    asked, mark = received.json, _digest(received.body)
    told: Json = {
        "id": f"resp_{mark}",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "parallel_tool_calls": True,
        "metadata": {},
        "tool_choice": "auto",
        "tools": [],
        **{member: asked[member] for member in CARRIED if asked.get(member) is not None},
        "model": asked["model"],
        "store": False,
        "output": list(items),
        "usage": _usage(received),
    }
    if not received.streams:
        return Answer([json.dumps(told).encode()], headers=list(JSON_HEADERS))
    begun = {**told, "status": "in_progress", "output": [], "usage": None}
    events: list[tuple[str, Json]] = [("created", {"response": begun}), ("in_progress", {"response": begun})]
    for index, item in enumerate(told["output"]):
        events += [(kind, {"output_index": index, **members}) for kind, members in _steps(item)]
    events.append(("completed", {"response": told}))
    pieces = [
        sse(f"response.{kind}", {"type": f"response.{kind}", "sequence_number": number, **members})
        for number, (kind, members) in enumerate(events)
    ]
    return Answer(pieces, headers=list(SSE_HEADERS))


def _steps(item: Json) -> Iterator[tuple[str, Json]]:
    """The events of an item."""
    at, kind = {"item_id": item["id"]}, item["type"]
    name = {"function_call": "arguments", "custom_tool_call": "input"}.get(kind, "")
    empty: Json = {name: ""} if name else {"content": []} if kind == "message" else {}
    yield "output_item.added", {"item": {**item, **empty, **({"status": "in_progress"} if empty else {})}}
    if name:
        event = f"{kind}_{name}"
        for half in halves(item[name]):
            yield f"{event}.delta", {**at, "delta": half}
        yield f"{event}.done", {**at, name: item[name]}
    for place, part in enumerate(item["content"] if kind == "message" else ()):
        here = {**at, "content_index": place}
        yield "content_part.added", {**here, "part": {**part, "text": ""}}
        for half in halves(part["text"]):
            yield "output_text.delta", {**here, "delta": half, "logprobs": []}
        yield "output_text.done", {**here, "text": part["text"], "logprobs": []}
        yield "content_part.done", {**here, "part": part}
    yield "output_item.done", {"item": item}


def _check_form(items: Sequence[Json]) -> None:
    """Check roles, contents and ids."""
    seen: set[str] = set()
    for place, item in enumerate(items):
        name, kind = item.get("id"), item.get("type", "")
        if kind == "item_reference":
            raise Refusal(UNKNOWN_ITEM.format(id=name), status=404)
        if kind == TRIGGER and name is not None:
            raise Refusal(f"Unknown parameter: 'input[{place}].id'.", f"input[{place}].id", "unknown_parameter")
        if name is not None and not name.startswith(begin := PREFIXES.get(kind, "")):
            message = f"Invalid 'input[{place}].id': '{name}'. Expected an ID that begins with '{begin}'."
            raise Refusal(message, f"input[{place}].id", "invalid_value")
        if name in seen:
            raise Refusal(f"Duplicate item found with id {name}. Remove duplicate items from your input and try again.")
        seen |= {name} if name else set()
        if kind == "reasoning" and "summary" not in item:
            missing = f"input[{place}].summary"
            raise Refusal(f"Missing required parameter: '{missing}'.", missing, "missing_required_parameter")
        if kind == "message":
            _check_message(item, f"input[{place}]")


def _check_message(item: Json, where: str) -> None:
    if item["role"] not in _ROLES:
        named = "'assistant', 'system', 'developer', and 'user'"
        message = f"Invalid value: '{item['role']}'. Supported values are: {named}."
        raise Refusal(message, where, "invalid_value")
    if isinstance(item["content"], str):
        return
    taken = ("output_text", "refusal") if item["role"] == "assistant" else ("input_text", "input_image", "input_file")
    for place, part in enumerate(item["content"]):
        if part["type"] not in taken:
            *first, last = [f"'{kind}'" for kind in taken]
            named = f"{', '.join(first)} and {last}"
            message = f"Invalid value: '{part['type']}'. Supported values are: {named}."
            raise Refusal(message, f"{where}.content[{place}]", "invalid_value")


def _check_pairs(items: Sequence[Json]) -> None:
    """Check that each call has one output behind it, and each output its call before it."""
    open_calls: dict[tuple[str, str], bool] = {}
    for item in items:
        kind = item["type"].removesuffix("_output")
        if kind not in CALLS:
            continue
        call = (kind, item["call_id"])
        if kind == item["type"]:
            open_calls[call] = True
        elif not open_calls.pop(call, False):
            raise Refusal(f"No tool call found for {CALLS[kind]} output with call_id {item['call_id']}.")
    for kind, name in open_calls:
        raise Refusal(f"No tool output found for {CALLS[kind]} {name}.")


def _check_follower(items: Sequence[Json], place: int, made: str) -> None:
    """Check that reasoning stands before what was made behind it: an item of the same answer, or one without an id."""
    behind = [item for item in items[place + 1 :] if item["type"] != "reasoning"]
    follower: Json = behind[0] if behind else {"type": ""}
    is_answer = follower.get("role") == "assistant" or follower["type"].endswith("_call")
    name = follower.get("id") or ""
    if not is_answer or (name and made.split("_")[1] not in name):
        raise Refusal(UNFOLLOWED.format(id=made))


def _usage(received: Received) -> Json:
    used = len(received.body) // 4
    return {
        "input_tokens": used,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": used + 5,
    }


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
