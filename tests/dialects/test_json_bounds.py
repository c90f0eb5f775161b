"""Bounds of a body, and the steps in which a large one is read: nobody waits for it, and it says the same."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tidemark.core.conversation import digest as meaning
from tidemark.core.conversation import messages
from tidemark.core.conversation.messages import Message
from tidemark.core.errors import InvalidRequest
from tidemark.dialects import json_bounds as bounds
from tidemark.dialects import json_steps as steps
from tidemark.dialects import raw_json as members
from tidemark.dialects import request_parser as bodies
from tidemark.dialects.chat import message as chat
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.dialects.chat.message import parse_message
from tidemark.dialects.chat.request import ChatElements
from tidemark.dialects.json_bounds import (
    LIGHT_BYTES,
    MAX_MEMBER_VALUES,
    MAX_MESSAGES,
    MAX_PART_VALUES,
    MAX_VALUES,
    end_of_string,
    is_utf8,
)
from tidemark.dialects.json_steps import LARGE_BYTES, decode_in_steps, end_of_value, slice_in_steps
from tidemark.dialects.raw_json import has_surrogates
from tidemark.dialects.request_parser import RequestParser

TEXTS = st.text(st.sampled_from(list('ab"\\ {}[],:é漢\ud83d\ude00\N{GRINNING FACE}')), max_size=30)
VALUES = st.recursive(
    TEXTS | st.integers() | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)

PARTS = st.builds(lambda text: {"type": "text", "text": text}, TEXTS) | st.builds(
    lambda url, more: {"type": "image_url", "image_url": {"url": url, "more": more}}, TEXTS, VALUES
)


def texts(*texts: str) -> list[dict[str, Any]]:
    """Messages of the user."""
    return [{"role": "user", "content": text} for text in texts]


def request(talk: list[dict[str, Any]], **others: Any) -> bytes:
    """A chat request."""
    return json.dumps({"model": "m", "messages": talk, **others}).encode()


@pytest.fixture
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is long, and a step is a few bytes."""
    for module in (bounds, steps, members):
        monkeypatch.setattr(module, "STEP_BYTES", 3)
    monkeypatch.setattr(steps, "JOINED_PIECES", 2)
    for module in (steps, members, bodies):
        monkeypatch.setattr(module, "LARGE_BYTES", 0)
    for module in (chat, meaning, messages):
        monkeypatch.setattr(module, "STEP_CHARS", 3)


@pytest.mark.usefixtures("short_steps")
@settings(max_examples=examples(300))
@given(VALUES, st.booleans())
def test_a_value_read_in_steps_is_the_value(value: Any, escaped: bool) -> None:  # noqa: FBT001
    """Escapes, characters of several bytes and pairs of halves are never parted; names may be long, too."""
    raw = json.dumps(value, ensure_ascii=escaped).encode(errors="surrogatepass")
    read: Callable[[bytes], Any] = lambda step: json.loads(step.decode(errors="surrogatepass"))  # noqa: E731
    assert decode_in_steps(raw, read) == json.loads(raw.decode(errors="surrogatepass"))
    assert end_of_value(b"[" + raw + b" , 1]", 1) == len(raw) + 1


def test_no_step_of_a_long_string_is_longer_than_its_bound() -> None:
    """Neither what is decoded at once, nor what is left when long strings are taken out."""
    decoded: list[int] = []

    def read(step: bytes) -> Any:
        decoded.append(len(step))
        return json.loads(step)

    text = 'a "quoted" word ' * (LARGE_BYTES // 8)
    assert decode_in_steps(json.dumps([text]).encode(), read) == [text]
    assert max(decoded) <= bounds.STEP_BYTES + len('""')
    assert len(decoded) > 2 * LARGE_BYTES // bounds.STEP_BYTES


@pytest.mark.usefixtures("short_steps")
@given(st.binary(max_size=20), st.integers(0, 20), st.integers(0, 20))
def test_a_slice_copied_in_steps_is_the_slice(raw: bytes, start: int, end: int) -> None:
    """Wherever it begins and ends, within the bytes."""
    start, end = min(start, len(raw)), min(end, len(raw))
    assert slice_in_steps(raw, start, end) == raw[start:end]


@pytest.mark.usefixtures("short_steps")
@pytest.mark.parametrize("before", range(4))
def test_a_half_character_is_found_on_both_sides_of_a_step(before: int) -> None:
    """Wherever a step ends; an escape of a whole character is none."""
    assert has_surrogates(b"a" * before + b"\\ud83d")
    assert not has_surrogates(b"a" * before + b"\\ud7ff")


@pytest.mark.usefixtures("short_steps")
@given(TEXTS, st.binary(max_size=5))
def test_the_end_of_a_string_is_where_its_quotation_mark_is(text: str, rest: bytes) -> None:
    """Wherever a step ends."""
    raw = json.dumps(text).encode()
    assert end_of_string(raw + rest, 1) == len(raw)


@settings(max_examples=examples(300), deadline=None)
@given(
    role=st.sampled_from(["system", "user", "assistant", "tool", "function"]),
    content=st.none() | TEXTS | st.lists(PARTS, max_size=3),
    others=st.fixed_dictionaries({}, optional={"name": TEXTS, "tool_call_id": TEXTS, "refusal": TEXTS}),
    arguments=st.none() | TEXTS | st.just('{"a": 1.0, "b":[2]}'),
)
def test_a_message_read_in_steps_means_the_same(
    role: str, content: Any, others: dict[str, str], arguments: str | None
) -> None:
    """Stored chains are made of digests, so a long message has the one that it always had."""
    value = {"role": role, "content": content, **others}
    if arguments is not None:
        value["tool_calls"] = [{"id": "c", "function": {"name": "f", "arguments": arguments}}]
    raw = json.dumps(value).encode()
    whole = parse_message(raw, json.loads(raw), 0)
    with pytest.MonkeyPatch.context() as patch:
        for module in (chat, meaning, messages):
            patch.setattr(module, "STEP_CHARS", 3)
        stepped = parse_message(raw, json.loads(raw), 0)
    assert stepped == whole
    assert (stepped.digest, stepped.wording) == (whole.digest, whole.wording)


@pytest.mark.parametrize("half", ["", "\\ud83d"], ids=["whole characters", "half a character"])
def test_a_text_takes_no_more_memory_than_its_bound(monkeypatch: pytest.MonkeyPatch, half: str) -> None:
    """One emoji makes every character of a text four bytes; base64 stays as it is."""
    monkeypatch.setattr(steps, "MAX_STRING_BYTES", 8_000_000)
    for text, served in (("a" * 7_000_000, True), ("a" * 7_000_000 + "😀", False), ("a" * 1_500_000 + "😀", True)):
        body = b'{"model": "m", "messages": [{"role": "user", "content": "%b"}]}' % (text + half).encode()
        if served and not (half and len(text) > 4_000_000):
            ChatDialect().parser.parse_now(body)
            continue
        with pytest.raises(InvalidRequest, match="are the most") as refused:
            ChatDialect().parser.parse_now(body)
        assert refused.value.code == "string_above_max_length"


@pytest.mark.parametrize("cut", ["", "\\ud83d"], ids=["whole characters", "half a character"])
def test_a_vast_body_is_taken_apart_in_steps_and_says_the_same(monkeypatch: pytest.MonkeyPatch, cut: str) -> None:
    """Members of one name too; what is no JSON is refused as in any other body."""
    talk = b'[ {"role":"user","content":"hi%b"} , {"role":"user","content":""} ]' % cut.encode()
    body = b' { "model" :"m", "x": {"a": [1, "}"]}, "messages":[], "messages": %b,"n":1.5 } ' % talk
    expected = ChatDialect().parser.parse_now(body)
    broken = [
        body[:-3],
        body.replace(b"1.5", b"1.5.5"),
        body.replace(b'"}"]', b'"}",]'),
        body + b"1",
        b"[]",
        b'{"a" 1}',
    ]
    told = []
    for size in (members.VAST_BYTES, 0):
        monkeypatch.setattr(members, "VAST_BYTES", size)
        read = ChatDialect().parser.parse_now(body)
        assert (read.messages, read.fields) == (expected.messages, expected.fields)
        for one in broken:
            with pytest.raises(InvalidRequest) as refused:
                ChatDialect().parser.parse_now(one)
            told.append((refused.value.code, refused.value.param))
    assert told[: len(broken)] == told[len(broken) :]


@given(st.binary(max_size=12))
def test_utf8_is_told_from_what_is_not(raw: bytes) -> None:
    """Character by character, also where a step ends inside one."""
    try:
        raw.decode()
        valid = True
    except UnicodeDecodeError:
        valid = False
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds, "STEP_BYTES", 2)
        assert is_utf8(raw) == valid


MANY = [
    (request(texts(*["a"] * (MAX_MESSAGES + 1))), "messages", "array_above_max_length", f"{MAX_MESSAGES:,}"),
    (request(texts("a"), x=[0] * (MAX_VALUES + 1)), None, "too_many_values", f"{MAX_VALUES:,}"),
    (
        request([{"role": "user", "content": [{"type": "x", **{f"m{n}": 1 for n in range(MAX_PART_VALUES)}}]}]),
        "messages.[0]",
        "too_many_values",
        f"{MAX_PART_VALUES:,}",
    ),
    (
        request(texts("a"), tools=[{}] * MAX_MEMBER_VALUES),
        "tools",
        "too_many_values",
        f"{MAX_MEMBER_VALUES:,}",
    ),
]


@pytest.mark.parametrize("half", [False, True], ids=["whole characters", "half a character"])
@pytest.mark.parametrize(("body", "param", "code", "bound"), MANY, ids=["messages", "values", "one message", "tools"])
def test_a_body_holds_no_more_than_its_bounds(
    body: bytes,
    param: str | None,
    code: str,
    bound: str,
    half: bool,  # noqa: FBT001
) -> None:
    """The error names the bound, whichever reader the body would have."""
    if half:
        body = body.replace(b'"model"', b'"cut": "\\ud83d", "model"')
    with pytest.raises(InvalidRequest, match=bound) as refused:
        ChatDialect().parser.parse_now(body)
    assert (refused.value.param, refused.value.code) == (param, code)


def test_as_much_as_the_bounds_is_read() -> None:
    """And what stands in texts is no member, however much it looks like one."""
    assert len(ChatDialect().parser.parse_now(request(texts(*["a"] * MAX_MESSAGES))).messages) == MAX_MESSAGES
    looking_so = json.dumps([{"a": [1, 2]}] * MAX_VALUES)
    assert ChatDialect().parser.parse_now(request(texts(looking_so))).messages[0].text == looking_so


def test_a_conversation_that_goes_on_meets_the_same_bound() -> None:
    """Where only its end is parsed; of what the store has, any number is read."""
    parser, talk = ChatDialect().parser, texts(*["a"] * MAX_MESSAGES)
    parser.parse_now(request(talk))
    longer = request([*talk, *texts("one more")])
    with pytest.raises(InvalidRequest, match="at most"):
        parser.parse_now(longer)
    assert len(parser.parse_now(longer, bounded=False).messages) == MAX_MESSAGES + 1


async def test_much_that_is_new_is_parsed_while_the_loop_goes_on() -> None:
    """Of a conversation that goes on only its end is new, so its next turn needs no thread."""
    threads: set[int] = set()

    class Watched(RequestParser[Message]):
        def _parse_all(self, raws: Any, first: int) -> Any:
            threads.add(threading.get_ident())
            return super()._parse_all(raws, first)

    parser, talk = Watched(ChatDialect(), ChatElements()), texts(*["some words"] * 4_000)
    assert len(request(talk)) > 2 * LIGHT_BYTES
    reading = asyncio.create_task(parser.parse(request(talk)))
    await reading
    assert threads
    assert threading.get_ident() not in threads
    threads.clear()
    again = await parser.parse(request([*talk, *texts("one more")]))
    assert threads == {threading.get_ident()}
    assert again.messages[:-1] == (await reading).messages


def test_threads_share_one_parser() -> None:
    """Its caches are for time only: what is read is the same, and they keep within their bounds."""
    parser = ChatDialect(200_000).parser
    sent = [request(texts(*[f"{number} {place} words" for place in range(60 + number)])) for number in range(24)]
    read: list[tuple[int, Any]] = []

    def work(first: int) -> None:
        read.extend([(place, parser.parse_now(sent[place])) for place in (*range(first, 24), *range(first))])

    threads = [threading.Thread(target=work, args=(first,)) for first in (0, 8, 16)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(read) == 72
    assert all(one.messages == ChatDialect().parser.parse_now(sent[place]).messages for place, one in read)
