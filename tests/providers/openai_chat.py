"""Chat completions, as strict as their providers are: an upstream that refuses what the real ones refuse.

It is a script for `tests/support/scripted.py`, and an answer to any `Received`. Nothing is kept between requests. Four
kinds of models have rules of their own, by their names. Those of DeepSeek want the reasoning of each answer that calls
tools back, whole, also if it was empty, and cannot tell what a client has put before it; Kimi wants the member. Those
of Gemini want the first call of each step signed since the newest question, and each behind a user's turn or a result.
Those of Claude, behind a gateway such as litellm, sign their thinking for what stood before it, and refuse it behind
anything else. All others know none of it. Source: OpenAI's reference "Create a chat completion" and guide "Function
calling", DeepSeek's guide "Thinking mode", Google's guide "Thought signatures", litellm's guide "Reasoning content";
the words of refusals are those that users of several SDKs report, and so is the rule for an empty reasoning.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.support.answers import JSON_HEADERS, SSE_HEADERS, Answer, Json, Received, halves
from tests.support.chat_answers import DONE, chunk, error, event

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
UNANSWERED = (
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The "
    "following tool_call_ids did not have response messages: {ids}"
)
UNCALLED = "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
REPEATED = "Duplicate value for 'tool_call_id' of {id} in message[{place}]."
NO_CALLS = "Invalid 'messages[{place}].tool_calls': empty array. Expected an array with minimum length 1."
NO_CONTENT = "Invalid value for 'content': expected a string, got null. (messages[{place}].content)"
UNREASONED = "The `reasoning_content` in the thinking mode must be passed back to the API."
UNREASONED_CALL = "thinking is enabled but reasoning_content is missing in assistant tool call message at index {place}"
UNSIGNED_CALL = (
    "Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly, "
    "and missing thought_signature may lead to degraded model performance. Additional data, function call "
    "`default_api:{name}` , position {place}."
)
ODD_CALL = (
    "Please ensure that function call turn comes immediately after a user turn or after a function response turn."
)
ANY_SIGNATURE = "skip_thought_signature_validator"
"""What Gemini takes for calls that another model made."""
UNSIGNED = "messages.{place}.content.0: Invalid `signature` in `thinking` block"
BOUND = UNSIGNED + ". The block is bound to a different conversation."
Say = Callable[[Json], Json]
"""Makes the message of an answer: its ``content``, its ``tool_calls``, and in ``thought`` what stands before both."""


class Refusal(Exception):
    """A request that is answered with 400."""


def answers_plainly(body: Json) -> Json:
    """Think, and answer."""
    return {"content": "Fine.", "thought": f"Hm, {len(body['messages'])}."}


@dataclass
class EnforcingChat:
    """The API, for any number of models."""

    say: Say = answers_plainly
    secret: bytes = b"a secret of the tests"
    refusals: list[str] = field(default_factory=list)
    """The messages of every 400."""

    def __call__(self, received: Received) -> Answer:
        """Answer a request for a completion."""
        body = received.json
        try:
            check_turns(body["messages"])
            self._check_reasoning(body)
            if body["model"].startswith("gemini"):
                self._check_signatures(body)
        except Refusal as refusal:
            self.refusals.append(str(refusal))
            return error(400, str(refusal))
        return tell(self._made(body), received)

    def _check_reasoning(self, body: Json) -> None:
        """Check what a model wants of its own earlier answers; it does not know those of other models."""
        for place, said in enumerate(body["messages"]):
            if body["model"].startswith("deepseek") and any("_deepseek_" in one for one in _ids_of(said)):
                size, _, made = next(one.rsplit("_", 2)[1] for one in _ids_of(said) if "_deepseek_" in one).partition(
                    "-"
                )
                thought = said.get("reasoning_content")
                if not isinstance(thought, str) or _digest(thought[len(thought) - int(size) :]) != made:
                    raise Refusal(UNREASONED)
            if body["model"].startswith("kimi") and _ids_of(said) and "reasoning_content" not in said:
                raise Refusal(UNREASONED_CALL.format(place=place))
            for block in (said.get("thinking_blocks") or ()) if body["model"].startswith("claude") else ():
                model, bound, made, mark = (block.get("signature", "").split(".") + [""] * 4)[:4]
                if made != _digest(block["thinking"]) or mark != self._mark(model, bound, made):
                    raise Refusal(UNSIGNED.format(place=place))
                if model == body["model"] and bound != prefix_of(body, body["messages"][:place]):
                    raise Refusal(BOUND.format(place=place))

    def _check_signatures(self, body: Json) -> None:
        """Check the order of turns, and the signature of each step's first call since the user's newest message."""
        contents = [said for said in body["messages"] if said["role"] not in ("system", "developer")]
        asked = max((place for place, said in enumerate(contents) if said["role"] == "user"), default=-1)
        for place, said in enumerate(contents):
            if not _ids_of(said):
                continue
            if place == 0 or contents[place - 1]["role"] == "assistant":
                raise Refusal(ODD_CALL)
            call = said["tool_calls"][0]
            signature = call.get("extra_content", {}).get("google", {}).get("thought_signature")
            if place < asked or signature == ANY_SIGNATURE:
                continue
            if not signature:
                raise Refusal(UNSIGNED_CALL.format(name=call["function"]["name"], place=place))
            if signature != self._mark("gemini", call["id"], call["function"]["arguments"]):
                raise Refusal("Invalid thought signature")

    def _made(self, body: Json) -> Json:
        """The message of the answer, with ids and what stands for its thinking."""
        said, model = self.say(body), body["model"]
        thought, family = said.get("thought", ""), model.partition("-")[0]
        message: Json = {"role": "assistant", "content": said.get("content")}
        if family in ("deepseek", "kimi") or (thought and family == "claude"):
            message["reasoning_content"] = thought
        if thought and family == "claude":
            bound, made = prefix_of(body, body["messages"]), _digest(thought)
            signature = ".".join((model, bound, made, self._mark(model, bound, made)))
            message["thinking_blocks"] = [{"type": "thinking", "thinking": thought, "signature": signature}]
        mark = _digest(json.dumps(body["messages"]))
        calls = [
            {
                "id": f"call_{mark}_{family}_{len(thought)}-{_digest(thought)}_{place}",
                "type": "function",
                "function": call,
            }
            for place, call in enumerate(said.get("tool_calls") or ())
        ]
        if family == "gemini" and calls:
            signature = self._mark("gemini", calls[0]["id"], calls[0]["function"]["arguments"])
            calls[0]["extra_content"] = {"google": {"thought_signature": signature}}
        return {**message, **({"tool_calls": calls} if calls else {})}

    def _mark(self, *parts: str) -> str:
        return hmac.new(self.secret, "\n".join(parts).encode(), hashlib.sha256).hexdigest()[:16]


def prefix_of(body: Json, messages: Sequence[Json]) -> str:
    """The digest of everything before an answer."""
    return _digest(json.dumps([body.get("tools") or [], list(messages)], sort_keys=True))


def check_turns(messages: Sequence[Json]) -> None:
    """Check roles and contents, and that the results of all calls follow them at once.

    :raises Refusal: OpenAI refuses these messages
    """
    if not messages:
        raise Refusal("Invalid 'messages': empty array. Expected an array with minimum length 1.")
    waiting: list[str] = []
    answered: list[str] = []
    for place, said in enumerate(messages):
        if said["role"] == "tool":
            name = said["tool_call_id"]
            if name in answered:
                raise Refusal(REPEATED.format(id=name, place=place))
            if name not in waiting:
                raise Refusal(UNCALLED)
            waiting.remove(name)
            answered.append(name)
            continue
        if waiting:
            raise Refusal(UNANSWERED.format(ids=", ".join(waiting)))
        _check_message(said, place)
        waiting, answered = _ids_of(said), []
    if waiting:
        raise Refusal(UNANSWERED.format(ids=", ".join(waiting)))


def _check_message(said: Json, place: int) -> None:
    """Check a message that is no result."""
    ids = _ids_of(said)
    if said["role"] not in ROLES:
        raise Refusal(f"Invalid value: '{said['role']}'. Supported values are: {', '.join(map(repr, ROLES))}.")
    if len(set(ids)) < len(ids):
        raise Refusal(REPEATED.format(id=ids[0], place=place))
    if said.get("tool_calls") == []:
        raise Refusal(NO_CALLS.format(place=place))
    if said.get("content") is None and not ids:
        raise Refusal(NO_CONTENT.format(place=place))


def tell(message: Json, received: Received) -> Answer:
    """A completion with this message, streamed or not as asked."""
    calls = message.get("tool_calls") or []
    finish, used = ("tool_calls" if calls else "stop"), len(received.body) // 4
    usage = {"prompt_tokens": used, "completion_tokens": 5, "total_tokens": used + 5}
    if not received.streams:
        told = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": received.json["model"]}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        return Answer([json.dumps({**told, "choices": [choice], "usage": usage}).encode()], headers=list(JSON_HEADERS))
    deltas: list[Json] = [{"role": "assistant", "content": ""}]
    deltas += [{name: message[name]} for name in ("reasoning_content", "thinking_blocks") if name in message]
    deltas += [{"content": half} for half in halves(message["content"] or "") if half]
    for index, call in enumerate(calls):
        deltas.append({"tool_calls": [{**call, "index": index, "function": {**call["function"], "arguments": ""}}]})
        for half in halves(call["function"]["arguments"]):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": half}}]})
    pieces = [chunk(delta=delta, finish_reason=None) for delta in deltas]
    pieces.append(chunk(delta={}, finish_reason=finish))
    if (received.json.get("stream_options") or {}).get("include_usage"):
        pieces.append(event(choices=[], usage=usage))
    return Answer([*pieces, DONE], headers=list(SSE_HEADERS))


def _ids_of(said: Json) -> list[str]:
    return [call["id"] for call in said.get("tool_calls") or ()]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
