"""Rules of counting what is no text: images by published formulas, attachments by their metadata."""

from __future__ import annotations

import asyncio
import base64
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.conversation.request import ModelRequest
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.dialects.chat.message import parse_message
from tidemark.tokens import LocalTokenCounter
from tidemark.tokens.images import ImagePricing, image_size, image_tokens, pricing_for


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
        ("computer-use-preview", 512, 512, "high", 194),
        ("claude-sonnet-4-5", 200, 200, "low", 54),
        ("bedrock/us.anthropic.claude-3-haiku", 1092, 1092, "auto", 1590),
        ("claude-sonnet-4-5", 6000, 6000, "high", 1600),
        ("gemini-2.5-pro", 384, 384, "high", 258),
        ("gemini-2.5-pro", 1536, 800, "high", 1032),
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
        assert 1 <= image_tokens(part, pricing_for("claude-3-haiku")) <= 1600
        assert image_tokens(part, pricing_for("gemini-2.5-pro")) >= 258
    assert image_tokens({"type": "image_url", "image_url": {"url": "https://a/b.png"}}, ImagePricing()) == 1445


def test_attachments_count_by_their_metadata() -> None:
    """A file's or a recording's content does not count, its name, type and size do."""
    data = base64.b64encode(bytes(300_000)).decode()
    file = {
        "type": "file",
        "file": {"filename": "report.pdf", "file_data": "data:application/pdf;base64," + data},
    }
    sound = {"type": "input_audio", "input_audio": {"format": "wav", "data": data}}
    for part in (file, sound):
        message = {"role": "user", "content": [part]}
        parsed = parse_message(json.dumps(message).encode(), message, 0)
        count = LocalTokenCounter().count_message(parsed, "gpt-4o")
        assert 8 < count < 40


@pytest.mark.parametrize("kind", [["text"], {"a": 1}, 5, None])
def test_a_part_whose_type_is_no_name_counts_as_what_is_written(kind: JsonValue) -> None:
    """It is for the upstream to refuse, as any part that we do not know."""
    counts = []
    for said in (kind, "unknown"):
        value = {"role": "user", "content": [{"type": said, "words": "as many as there are"}]}
        parsed = parse_message(json.dumps(value).encode(), value, 0)
        request = ModelRequest(b"", {}, "m", (parsed,), ChatDialect())
        counts.append(asyncio.run(LocalTokenCounter().count(request, "gpt-4o")).messages[0])
    assert abs(counts[0] - counts[1]) < 5
