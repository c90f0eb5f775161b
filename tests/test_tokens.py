"""Rules of ``proxy.tokens``: published counts, linear time, no network, nothing approximated unasked."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import struct
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.chat import parse_message
from proxy.core.errors import TokenizerFailed
from proxy.core.messages import ChatRequest, JsonValue, Message
from proxy.tokens import LocalTokenCounter, encoding_for
from proxy.tokens.images import ImagePricing, image_size, image_tokens, pricing_for
from proxy.tokens.vocabulary import Vocabulary, pieces, vocabulary

COUNTER = LocalTokenCounter()
CL100K = "gpt-3.5-turbo"
HELLO = {"role": "user", "content": "hello"}
TEXTS = st.text(alphabet=st.sampled_from("ab Z9.,'\n\t/\r-éß中😀\u200d\x1c\xa0"), max_size=400)


@pytest.fixture
def anyio_backend() -> str:
    """Asyncio only, as the product."""
    return "asyncio"


def message(value: JsonValue) -> Message:
    """One message as the edge reads it."""
    return parse_message(json.dumps(value).encode(), value, 0)


def request(*values: JsonValue, **counted: JsonValue) -> ChatRequest:
    """A chat request as the edge reads it."""
    fields = {name: json.dumps(value).encode() for name, value in counted.items()}
    return ChatRequest(b"", fields, "m", tuple(map(message, values)), counted=counted)


def schema(required: tuple[str, ...] = (), **properties: JsonValue) -> JsonValue:
    """The JSON schema of an object."""
    return {"type": "object", "properties": properties, "required": list(required)}


def total(*values: JsonValue, model: str = CL100K, **counted: JsonValue) -> int:
    """Tokens of a whole request."""
    return asyncio.run(COUNTER.count(request(*values, **counted), model)).total


@pytest.mark.parametrize(
    ("model", "encoding"),
    [
        ("gpt-4o-mini", "o200k_base"),
        ("openai/gpt-4.1", "o200k_base"),
        ("gpt-5", "o200k_base"),
        ("o3", "o200k_base"),
        ("gpt-4", "cl100k_base"),
        ("azure/gpt-4-turbo-2024-04-09", "cl100k_base"),
        ("ft:gpt-3.5-turbo:acme::1", "cl100k_base"),
        ("text-embedding-3-small", "cl100k_base"),
        ("groq/openai/gpt-oss-120b", "o200k_harmony"),
        ("claude-sonnet-4", "o200k_base"),
        ("", "o200k_base"),
    ],
)
def test_a_model_is_counted_in_its_own_encoding(model: str, encoding: str) -> None:
    """The encoding follows the model's name behind any provider; unknown ones get o200k_base."""
    assert encoding_for(model) == encoding


@pytest.mark.parametrize(
    ("values", "functions", "tokens"),
    [
        ([HELLO], [], 8),
        ([{"role": "system", "content": "# Important: you're the best robot"}, HELLO], [], 20),
        ([HELLO], [{"name": "foo", "parameters": schema()}], 31),
        ([HELLO], [{"name": "foo", "description": "Do a foo", "parameters": schema()}], 36),
        (
            [HELLO],
            [
                {
                    "name": "bing_bong",
                    "description": "Do a bing bong",
                    "parameters": schema(foo={"type": "string"}),
                }
            ],
            49,
        ),
        (
            [{"role": "system", "content": "Hello"}, {"role": "user", "content": "Hi there"}],
            [{"name": "do_stuff", "parameters": schema()}],
            35,
        ),
        (
            [{"role": "function", "name": "dance_the_tango", "content": '{"a": { "b" : { "c": false}}}'}],
            [],
            24,
        ),
        (
            [
                {
                    "role": "assistant",
                    "content": "",
                    "function_call": {"name": "do_stuff", "arguments": '{"foo": "bar", "baz": 1.5}'},
                }
            ],
            [],
            26,
        ),
    ],
)
def test_counts_are_those_of_the_api(
    values: list[JsonValue], functions: list[JsonValue], tokens: int
) -> None:
    """The published formulas give what the API bills; ``tools`` cost what legacy ``functions`` do."""
    if not functions:
        assert total(*values) == tokens
        return
    assert total(*values, functions=functions) == tokens
    assert total(*values, tools=[{"type": "function", "function": one} for one in functions]) == tokens


def test_nested_schemas_are_billed_as_typescript() -> None:
    """Objects, arrays, enums, optional members and descriptions are rendered, not counted as JSON."""
    unit = {"type": "string", "enum": ["grams", "ml", "cups", "pieces", "teaspoons"]}
    item = schema(("name", "unit", "amount"), name={"type": "string"}, unit=unit, amount={"type": "number"})
    parameters = schema(
        ("ingredients", "instructions", "time_to_cook"),
        ingredients={"type": "array", "items": item},
        instructions={
            "type": "array",
            "items": {"type": "string"},
            "description": "Steps to prepare the recipe (no numbering)",
        },
        time_to_cook={"type": "number", "description": "Total time to prepare the recipe in minutes"},
    )
    assert total(HELLO, functions=[{"name": "get_recipe", "parameters": parameters}]) == 106


def test_a_tool_choice_is_billed() -> None:
    """``none`` costs one token, a named function four and its name, ``auto`` nothing."""
    tools = [{"type": "function", "function": {"name": "foo", "parameters": schema()}}]
    plain = total(HELLO, tools=tools)
    assert total(HELLO, tools=tools, tool_choice="auto") == plain
    assert total(HELLO, tools=tools, tool_choice="none") == plain + 1
    named = {"type": "function", "function": {"name": "foo"}}
    assert total(HELLO, tools=tools, tool_choice=named) == plain + 5


def test_schemas_calls_and_results_are_counted() -> None:
    """A response_format's schema, a call's name, arguments and id, and the id a result answers all count."""
    assert total(HELLO, response_format={"type": "json_schema", "json_schema": {"name": "a"}}) > total(HELLO)
    assert total(HELLO, response_format={"type": "json_object"}) == total(HELLO)
    call = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a.py"}'}}
    asked = {"role": "assistant", "content": None, "tool_calls": [call]}
    assert COUNTER.count_message(message(asked), "gpt-4o") == 4 + 3 + sum(
        COUNTER.count_text(text, "gpt-4o") for text in ("read", '{"path": "a.py"}', "call_1")
    )
    result = {"role": "tool", "tool_call_id": "call_1", "content": "hello"}
    assert COUNTER.count_message(message(result), "gpt-4o") == 4 + 3 + 1


def test_odd_tools_are_counted_and_never_an_error() -> None:
    """A circle of references, deep nesting, and tools that are no functions get a count."""
    deep: JsonValue = {"type": "string"}
    for _ in range(300):
        deep = {"type": "object", "properties": {"a": deep}}
    circle = {"$ref": "#/$defs/node"}
    odd = [
        {"type": "function", "function": {"name": "f", "parameters": schema(a=circle, b=deep, c=7)}},
        {"type": "web_search"},
        {"name": "anthropic", "input_schema": schema(a={"type": ["string", "null"]})},
        None,
        "text",
    ]
    assert total(HELLO, tools=odd) > total(HELLO, tools=odd[:1]) > total(HELLO)
    assert total(HELLO, tools="not a list") > total(HELLO)


def png(width: int, height: int) -> bytes:
    """A PNG as far as its header goes."""
    return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, height) + bytes(20)


def jpeg(width: int, height: int) -> bytes:
    """A JPEG with EXIF data before its frame."""
    exif = b"\xff\xe1" + struct.pack(">H", 9002) + bytes(9000)
    frame = b"\xff\xc0\0\x11\x08" + struct.pack(">HH", height, width) + bytes(20)
    return b"\xff\xd8" + exif + frame


@pytest.mark.parametrize(
    "data",
    [
        png(640, 480),
        jpeg(640, 480),
        b"GIF89a" + struct.pack("<HH", 640, 480) + bytes(30),
        b"RIFF\0\0\0\0WEBPVP8X" + bytes(8) + (639).to_bytes(3, "little") + (479).to_bytes(3, "little"),
        b"RIFF\0\0\0\0WEBPVP8L" + bytes(5) + (639 | 479 << 14).to_bytes(4, "little") + bytes(9),
        b"RIFF\0\0\0\0WEBPVP8 " + bytes(10) + struct.pack("<HH", 640, 480),
    ],
)
def test_an_image_s_size_is_read_from_its_header(data: bytes) -> None:
    """PNG, JPEG, GIF and the three kinds of WEBP tell their size without being decoded."""
    assert image_size("data:image/x;base64," + base64.b64encode(data).decode()) == (640, 480)


@pytest.mark.parametrize(
    ("model", "width", "height", "detail", "tokens"),
    [
        ("gpt-4o", 1024, 1024, "high", 765),
        ("gpt-4o", 2048, 4096, "high", 1105),
        ("gpt-4o", 4096, 8192, "low", 85),
        ("gpt-4o", 512, 512, "auto", 255),
        ("gpt-4o-mini", 512, 512, "high", 8500),
        ("gpt-5", 512, 512, "high", 210),
        ("gpt-4.1-mini", 1024, 1024, "high", 1659),
        ("o4-mini", 1800, 2400, "high", 2498),
    ],
)
def test_images_cost_what_is_published(model: str, width: int, height: int, detail: str, tokens: int) -> None:
    """Tiles of 512 px after fitting, or patches of 32 px, by the model's family; the guide's own examples."""
    url = "data:image/png;base64," + base64.b64encode(png(width, height)).decode()
    part = {"type": "image_url", "image_url": {"url": url, "detail": detail}}
    assert image_tokens(part, pricing_for(model)) == tokens


@given(
    st.binary(max_size=200),
    st.sampled_from(["", "data:image/png;base64,", "data:image/jpeg;base64,\xff", "data:,"]),
)
def test_a_broken_image_has_a_conservative_count(data: bytes, head: str) -> None:
    """What is no image counts as the largest one, and is never an error."""
    for start in (b"", b"\xff\xd8", b"RIFF1234WEBP"):
        part = {"type": "image_url", "image_url": {"url": head + base64.b64encode(start + data).decode()}}
        assert 85 <= image_tokens(part, ImagePricing()) <= 85 + 8 * 170
    assert (
        image_tokens({"type": "image_url", "image_url": {"url": "https://a/b.png"}}, ImagePricing()) == 1445
    )


def test_attachments_count_by_their_metadata() -> None:
    """A file's or a recording's content does not count, its name, type and size do."""
    data = base64.b64encode(bytes(300_000)).decode()
    file = {
        "type": "file",
        "file": {"filename": "report.pdf", "file_data": "data:application/pdf;base64," + data},
    }
    sound = {"type": "input_audio", "input_audio": {"format": "wav", "data": data}}
    for part in (file, sound):
        count = COUNTER.count_message(message({"role": "user", "content": [part]}), "gpt-4o")
        assert 8 < count < 40


@settings(max_examples=300)
@given(TEXTS, st.integers(5, 60), st.sampled_from(["o200k_base", "cl100k_base"]))
def test_pieces_do_not_change_the_count(text: str, limit: int, encoding: str) -> None:
    """Pieces make up the text; where each ends at a space or a line end, their tokens are the text's."""
    parts = list(pieces(text, limit))
    assert "".join(parts) == text
    assert all(0 < len(part) <= limit for part in parts)
    found = vocabulary(encoding)
    if all(len(part) < limit for part in parts[:-1]):
        assert sum(map(found.count, parts)) == found.count(text)


@settings(max_examples=200)
@given(TEXTS | st.text(max_size=80), st.integers(-1, 120))
def test_a_cut_text_is_the_longest_that_fits(text: str, max_tokens: int) -> None:
    """A beginning of the text, never too long when it is counted again, and one character more would be."""
    cut = COUNTER.cut_text(text, "gpt-4o", max_tokens)
    assert text.startswith(cut)
    assert COUNTER.count_text(cut, "gpt-4o") <= max(max_tokens, 0)
    if cut != text and max_tokens > 0:
        assert COUNTER.count_text(text[: len(cut) + 1], "gpt-4o") > max_tokens


@pytest.mark.parametrize("unit", ["a", " ", "😀", "<|endoftext|>", "QUJD/+9z", "\n", "中", "a "])
def test_a_megabyte_of_anything_is_counted_in_linear_time(unit: str) -> None:
    """No text panics or is quadratic: 1 MB takes at most forty times what 50 kB take."""
    small, large = (unit * (size // len(unit)) for size in (50_000, 1_000_000))
    took = []
    for text in (small, large):
        start = time.perf_counter()
        LocalTokenCounter().count_text(text, "gpt-4o")
        took.append(time.perf_counter() - start)
    assert took[1] < 40 * took[0] + 0.5


def test_a_long_text_is_cut_within_its_pieces() -> None:
    """The bound holds over the pieces that a long text is counted in."""
    for text in ("word " * 60_000, "a" * 300_000, "中文。" * 30_000):
        cut = COUNTER.cut_text(text, "gpt-4o", 20_000)
        assert 19_990 <= COUNTER.count_text(cut, "gpt-4o") <= 20_000


@pytest.mark.anyio
async def test_large_texts_do_not_stall_the_event_loop() -> None:
    """While 4 MB are counted, the loop turns at least every 50 ms (200 ms here, for slow machines)."""
    counter = LocalTokenCounter()
    counter.count_text("load", "gpt-4o")
    task = asyncio.create_task(
        counter.count(request({"role": "user", "content": "some words " * 400_000}), "gpt-4o")
    )
    worst = 0.0
    while not task.done():
        start = time.perf_counter()
        await asyncio.sleep(0.001)
        worst = max(worst, time.perf_counter() - start)
    assert (await task).total > 400_000
    assert worst < 0.2


@pytest.mark.anyio
async def test_a_following_turn_counts_only_what_is_new() -> None:
    """What was counted once is looked up, and a digest's count is told apart by model family."""
    counter = LocalTokenCounter()
    values = [{"role": "user", "content": f"message {number} " * 40} for number in range(200)]
    first = await counter.count(request(*values), "gpt-4o")
    start = time.perf_counter()
    again = await counter.count(request(*values, HELLO), "gpt-4o")
    assert time.perf_counter() - start < 0.05
    assert again.messages[:-1] == first.messages
    assert again.total == first.total + 5
    assert (await counter.count(request(*values), "gpt-4")).encoding == "cl100k_base"


@given(st.lists(TEXTS, min_size=1, max_size=6), TEXTS)
def test_more_messages_are_never_fewer_tokens(texts: list[str], more: str) -> None:
    """Metamorphic: a message adds at least its overhead, and parts are what the total is made of."""
    values = [{"role": "user", "content": text} for text in texts]
    assert total(*values, {"role": "user", "content": more}) >= total(*values) + 4


def test_a_missing_vocabulary_is_an_error_with_its_mend(tmp_path: Path) -> None:
    """FR-5.2.1: no file, no count, no download; an altered file is refused and left where it is."""
    counter = LocalTokenCounter(folder=tmp_path)
    with pytest.raises(TokenizerFailed, match="install Tidemark's locked dependencies"):
        counter.count_text("hello", "gpt-4o")
    altered = tmp_path / "fb374d419588a4632f3f557e76b4b70aebbca790"
    altered.write_bytes(b"YQ== 0\n")
    with pytest.raises(TokenizerFailed):
        counter.count_text("hello", "gpt-4o")
    assert altered.exists()


def test_estimates_are_opt_in_and_warned_of_once(tmp_path: Path) -> None:
    """``estimate`` takes four characters for a token and says so one time."""
    warnings: list[str] = []
    counter = LocalTokenCounter(on_failure="estimate", on_warning=warnings.append, folder=tmp_path)
    assert counter.count_text("hello world", "gpt-4o") == 3
    assert counter.cut_text("hello world", "gpt-4o", 2) == "hello wo"
    assert len(warnings) == 1


def test_loading_leaves_the_environment_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator's own cache folder is set aside only while a vocabulary is read."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "elsewhere")
    vocabulary.cache_clear()
    assert vocabulary("cl100k_base").count("hello") == 1
    assert os.environ["TIKTOKEN_CACHE_DIR"] == "elsewhere"


def test_a_panic_of_the_tokenizer_is_a_tokenizer_failure() -> None:
    """A real panic (1 MB of spaces in one call) becomes our error; an interrupt stays what it is."""
    with pytest.raises(TokenizerFailed):
        vocabulary("o200k_base")._encode(" " * 1_000_000)  # noqa: SLF001 - round the pieces on purpose

    class Interrupted:
        def encode_ordinary(self, text: str) -> list[int]:
            raise KeyboardInterrupt

        def decode_bytes(self, tokens: list[int]) -> bytes:
            return b""

    with pytest.raises(KeyboardInterrupt):
        Vocabulary("x", Interrupted()).count("text")


def test_lone_surrogates_are_counted() -> None:
    """JSON can carry half a surrogate pair; it counts as some token instead of failing."""
    assert COUNTER.count_text("a\ud83d" * 300, "gpt-4o") > 0
    assert COUNTER.cut_text("a\ud83d" * 30, "gpt-4o", 7)
