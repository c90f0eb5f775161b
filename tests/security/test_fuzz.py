"""Whatever bytes come: each reader ends, with a value or with an error of its own, and what was written is read again.

CI runs some hundred fixed examples of each target; ``make fuzz`` runs others for as long as it is told to.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.server.connections.served import GET, Served, hello
from tests.upstream.http1.test_http1_answer import fed
from tidemark.codings.decoders import DECODE_ERRORS, DECODERS
from tidemark.codings.frames import BrokenFrame, FrameWriter, read_frames
from tidemark.compaction.sealing import PREFIX, TenantSeal
from tidemark.config import load
from tidemark.core.conversation.lossless import restored, squeezed
from tidemark.core.errors import ConfigError, InvalidRequest, RecordUnreadable, TidemarkError
from tidemark.dialects.forms import boundary_of, check_pairs, field_of_form, model_of_pairs, pairs_with_model
from tidemark.features.upkeep.export_lines import read_lines
from tidemark.server.connections import Bounds
from tidemark.store.codec import Codec
from tidemark.store.connection.pipelined import StoreSocket
from tidemark.worker.dialects import CHAT, MESSAGES, RESPONSES, build_dialects

pytestmark = [pytest.mark.security, pytest.mark.timeout(7200)]

SECONDS = float(os.environ.get("TIDEMARK_FUZZ_SECONDS", "0"))
"""For all targets together; 0 runs the fixed examples."""
EXAMPLES, ROUND_EXAMPLES = 300, 2000
DICTIONARY = (
    *(b"\r\n", b"\n", b"\0", b"\xff", b"\xed\xa0\x80", b"\\ud800", b"{", b"}", b"[", b"]", b'"', b",", b":", b"null"),
    *(b"true", b"1e999", b"-0", b"9" * 40, b"data: ", b"event: ", b"[DONE]", b"transfer-encoding: chunked\r\n"),
    *(b"content-length: 5\r\n", b"content-length: 4\r\n", b"0\r\n\r\n", b"--edge", b"--edge--", b"&", b"=", b"%00"),
    *(b"!!python/object", b"<<: *a", b"- ", b"$-1\r\n", b"*3\r\n", b">2\r\n", b"%1\r\n", b'"role":"user"'),
)
"""Pieces that mean something to some reader."""
DIALECTS = build_dialects()
SEAL = TenantSeal(b"a secret of the tests")
Target = Callable[[bytes], None]


def spliced(seeds: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """Any bytes, and seeds that are cut, doubled, overwritten and mixed with pieces of the dictionary."""
    piece = st.one_of(st.sampled_from(DICTIONARY), st.binary(max_size=8))

    def change(seed: bytes, changes: list[tuple[int, int, bytes]]) -> bytes:
        for place, length, more in changes:
            at = place % (len(seed) + 1)
            seed = seed[:at] + more + seed[at + length :]
        return seed

    changes = st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 12), piece), max_size=6)
    return st.one_of(st.builds(change, st.sampled_from(seeds), changes), st.binary(max_size=300))


def parse(path: str) -> Target:
    """Read a request; what was read is written again with another model, and has all else as it was."""

    def target(data: bytes) -> None:
        dialect = DIALECTS[path]
        try:
            request = asyncio.run(_parsed(path, data))
        except TidemarkError:
            return
        written = json.loads(dialect.body_with_model(request, "another"))
        before = json.loads(data)
        assert written.pop("model") == "another"
        before.pop("model", None)
        assert json.dumps(written) == json.dumps(before)

    return target


async def _parsed(path: str, data: bytes) -> Any:
    return await DIALECTS[path].parse(data)


def fold(path: str) -> Target:
    """Read an answer, whole and as a stream in two pieces; a broken one is no error, only no answer."""

    def target(data: bytes) -> None:
        reader = DIALECTS[path].fold_stream()
        middle = len(data) // 2
        for piece in (data[:middle], data[middle:]):
            reader.feed(piece)
        reader.reply()
        DIALECTS[path].fold_body(data)
        DIALECTS[path].before_end(data)

    return target


def form(data: bytes) -> None:
    """Read a form and pairs; a pair's model can be replaced."""
    with suppress(InvalidRequest):
        field_of_form(boundary_of(b"multipart/form-data; boundary=edge"), data)
    with suppress(InvalidRequest):
        boundary_of(data)
    pairs = data.decode("latin-1")
    with suppress(InvalidRequest):
        check_pairs(pairs)
        if model_of_pairs(pairs) is not None:
            assert model_of_pairs(pairs_with_model(pairs, "another")) == "another"


def yaml(data: bytes) -> None:
    """Read a configuration."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tidemark.yaml"
        path.write_bytes(data)
        with suppress(ConfigError):
            load(path, {"HOME": folder})


class Wire(asyncio.Transport):
    """A connection to a store that takes everything."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """There is no socket."""
        return default

    def write(self, data: Any) -> None:
        """Forget it."""

    def is_closing(self) -> bool:
        """Stay open."""
        return False

    def abort(self) -> None:
        """Close."""


def store_reply(data: bytes) -> None:
    """Read replies of a store: every call has an answer or a lost connection in the end."""

    async def talk() -> None:
        wire = StoreSocket()
        wire.connection_made(Wire())
        answers = [wire.send(b"*1\r\n$4\r\nPING\r\n") for _ in range(3)]
        for start in range(0, len(data), 7):
            wire.data_received(data[start : start + 7])
        wire.connection_lost(None)
        assert all(answer.done() for answer in answers)
        await asyncio.gather(*answers, return_exceptions=True)

    asyncio.run(talk())


def http_answer(data: bytes) -> None:
    """Read an answer of an upstream, in any pieces."""
    whole = fed(data, [])
    if whole[3]:
        assert fed(data, [1, 5, 40, 41, 90])[:4] == whole[:4]


def sealed(data: bytes) -> None:
    """Open only what was sealed, for its tenant only, and unchanged."""
    text = data.decode("utf-8", "replace")
    whole = SEAL.seal("alice", text)
    assert SEAL.open("alice", whole) == text
    for tenant, item in (("bob", whole), ("alice", whole[:-6] + "AAAA=="), ("alice", PREFIX + text)):
        with suppress(InvalidRequest):
            assert item == whole, SEAL.open(tenant, item)
    assert SEAL.open("alice", "x" + text) is None


def frames(data: bytes) -> None:
    """Read a file of an export: its frames, and the lines of each."""
    file = BytesIO()
    writer = FrameWriter(file)
    writer.add(data)
    writer.end()
    assert [frame.content for frame in read_frames(BytesIO(file.getvalue()))] == [data]
    for content in (data, file.getvalue()[: len(data)] + data):
        with suppress(BrokenFrame, ValueError):
            for frame in read_frames(BytesIO(content), max_bytes=100_000):
                read_lines(frame.content)
    with suppress(ValueError):
        read_lines(data)


def lossless(data: bytes) -> None:
    """Make a tool result shorter, and restore it to the byte."""
    text = data.decode("utf-8", "replace")
    shorter = squeezed(text)
    assert shorter is None or restored(shorter) == text


def records(data: bytes) -> None:
    """Read stored records."""
    codec = Codec()
    codec.readable_message(data, 1, b"", "f" * 32)
    codec.readable_turn(data, "f" * 32)
    codec.readable_summary(data, "f" * 32)
    with suppress(RecordUnreadable):
        codec.unpack_json(data)


def codings(data: bytes) -> None:
    """Undo every coding of a body."""
    for make in DECODERS.values():
        decoder = make()
        with suppress(*DECODE_ERRORS):
            assert sum(len(piece) for _, piece in zip(range(64), decoder.pieces(data), strict=False)) < 64 * 2**20
            decoder.finish()


_CHAT = b'{"model":"small","messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"r"}],"stream":true,"stream_options":{"include_usage":true}}'  # noqa: E501
_RESPONSES = b'{"model":"small","input":[{"role":"user","content":[{"type":"input_text","text":"Hi"}]},{"type":"reasoning","id":"r","summary":[],"encrypted_content":"x"},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"r"},{"type":"item_reference","id":"i"}],"previous_response_id":"resp_1"}'  # noqa: E501
_MESSAGES = b'{"model":"small","max_tokens":5,"system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"tool_use","id":"t","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"r"}]}]}'  # noqa: E501
_CHAT_STREAM = b'data: {"id":"1","choices":[{"index":0,"delta":{"role":"assistant","content":"He"},"finish_reason":null}]}\n\ndata: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{"}}]},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\ndata: [DONE]\n\n'  # noqa: E501
_RESPONSES_STREAM = b'event: response.created\ndata: {"type":"response.created","response":{"id":"resp_1","output":[]},"sequence_number":0}\n\nevent: response.output_item.done\ndata: {"type":"response.output_item.done","output_index":0,"item":{"type":"message","role":"assistant","content":[]}}\n\nevent: response.completed\ndata: {"type":"response.completed","response":{"id":"resp_1","output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"x"}]}],"usage":{"input_tokens":1,"output_tokens":1}}}\n\n'  # noqa: E501
_MESSAGES_STREAM = b'event: message_start\ndata: {"type":"message_start","message":{"role":"assistant","content":[],"usage":{"input_tokens":1}}}\n\nevent: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}\n\nevent: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}\n\nevent: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n'  # noqa: E501
_FORM = b'--edge\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nx\r\n--edge\r\nContent-Disposition: form-data; name="model"\r\n\r\nsmall\r\n--edge--\r\n'  # noqa: E501
_YAML = b"server: {port: 1, host: 127.0.0.1}\nmodel_list:\n  - model_name: a\n    litellm_params: {model: openai/x, api_base: 'http://x/v1'}\ncompaction: {defaults: {strategy: llm, threshold: 0.8}}\n"  # noqa: E501
_REPLY = b"+PONG\r\n$5\r\nhello\r\n*2\r\n:1\r\n%1\r\n+a\r\n_\r\n"
_ODD_REPLY = b"%1\r\n*1\r\n:1\r\n+a\r\n"
"""A map with a list as a key, which no value of Python can be."""
_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx: y\r\n\r\n"
)
_REQUEST = b"POST /x HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhello"
_LINES = b'{"line":"header","format":1}\n{"line":"record","key":"tm:a","value":"x"}\n{"line":"end","records":1}\n'
_RESULT = b'{\n  "a": [1, 2, {"b": "c"}]\n}\n\x1b[31mred\x1b[0m\nline\nline\nline\n   \n'
TARGETS: dict[str, tuple[Target, Sequence[bytes]]] = {
    "chat requests": (parse(CHAT), [_CHAT]),
    "responses requests": (parse(RESPONSES), [_RESPONSES]),
    "messages requests": (parse(MESSAGES), [_MESSAGES]),
    "chat answers": (fold(CHAT), [_CHAT_STREAM]),
    "responses answers": (fold(RESPONSES), [_RESPONSES_STREAM]),
    "messages answers": (fold(MESSAGES), [_MESSAGES_STREAM]),
    "forms": (form, [_FORM, b"model=a&x=%41&model=a"]),
    "YAML": (yaml, [_YAML]),
    "replies of the store": (store_reply, [_REPLY, _ODD_REPLY]),
    "answers of upstreams": (http_answer, [_HEAD, b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"]),
    "sealed items": (sealed, [b"The summary."]),
    "frames of exports": (frames, [_LINES]),
    "lossless forms": (lossless, [_RESULT]),
    "stored records": (records, [b'[1, "user", {}]', zlib.compress(_CHAT), _CHAT]),
    "codings": (codings, [zlib.compress(_CHAT), b"\x1f\x8b\x08\0\0\0\0\0\0\0", b"(\xb5/\xfd\0X\0\0"]),
}


@pytest.mark.parametrize(("target", "seeds"), TARGETS.values(), ids=TARGETS)
def test_no_bytes_bring_a_reader_down(target: Target, seeds: Sequence[bytes]) -> None:
    """It ends with a value or with its own kind of error."""
    run(given(spliced(seeds))(target))


def test_no_bytes_bring_the_server_down() -> None:
    """Whatever a client sends, the next one is served; an answer is one of HTTP, and none leaves a task behind."""
    bounds = Bounds(head_seconds=5)
    with Served(hello, bounds) as server:

        def target(data: bytes) -> None:
            with server.client() as hostile, suppress(OSError):
                hostile.send(data + b"\r\n\r\n")
                hostile.wire.shutdown(1)
                start = hostile.wire.recv(9)
                assert start in (b"", b"HTTP/1.1 ")
            with server.client() as next_client:
                next_client.send(GET)
                assert next_client.answer()[0] == 200

        run(given(spliced([_REQUEST, _HEAD, GET]))(target))


def run(test: Callable[[], None]) -> None:
    """Run a property: its fixed examples, or others until the target's share of the time is over."""
    quiet = settings(deadline=None, suppress_health_check=[*HealthCheck], print_blob=True)
    if not SECONDS:
        settings(quiet, derandomize=True, max_examples=EXAMPLES)(test)()
        return
    others = settings(quiet, derandomize=False, database=None, max_examples=ROUND_EXAMPLES)(test)
    end = time.monotonic() + SECONDS / (len(TARGETS) + 1)
    while time.monotonic() < end:
        others()
