"""Turns parts that are neither text nor image into the text they count as.

``accounting`` and ``counting`` use it. Audio, video and files count by their metadata; their content is never counted
(docs/promises.md, open question 3).
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.core.conversation.messages import JsonValue
from tidemark.tokens.tools import serialised

IMAGES = frozenset({"image_url", "input_image", "image"})
SEAL_BYTES = 650
BYTES_A_TOKEN = 4
_ATTACHMENTS = frozenset({"file", "input_file", "document"}) | frozenset(
    {"audio", "audio_url", "input_audio", "video", "video_url", "input_video"}
)
_PLAIN_FIELDS = ("filename", "name", "title", "mime_type", "media_type", "format", "file_id", "id")
_CONTENT_FIELDS = ("data", "file_data", "url", "file_url")


def kind_of(part: Mapping[str, JsonValue]) -> str:
    """Return a part's type, or an empty string if it has no type that is a string."""
    kind = part.get("type")
    return kind if isinstance(kind, str) else ""


def part_text(part: Mapping[str, JsonValue]) -> str:
    """Return the text that a part counts as: an attachment's metadata, or an unknown part's own JSON."""
    if kind_of(part) in _ATTACHMENTS:
        return "\n".join([_metadata(part), *_document_texts(part)])
    thought = part.get("thinking")
    return thought if isinstance(thought, str) else serialised(part)


def sealed_tokens(part: Mapping[str, JsonValue]) -> int | None:
    """Return about how many tokens are in content that only the provider can read; None for any other part.

    Reasoning and compaction items have it (OpenAI API reference, ``encrypted_content``), and redacted thinking
    (Anthropic API reference, ``redacted_thinking``, ``data``). Base64 has 3 bytes in 4
    characters, some 650 bytes are the envelope, and a token takes 4 bytes.
    """
    sealed = part.get("data" if kind_of(part) == "redacted_thinking" else "encrypted_content")
    return max(len(sealed) * 3 // 4 - SEAL_BYTES, 0) // BYTES_A_TOKEN if isinstance(sealed, str) else None


def _document_texts(part: Mapping[str, JsonValue]) -> list[str]:
    """Return the texts of a document that is no file: Anthropic bills them as they are ("Citations")."""
    source = part.get("source")
    if not isinstance(source, dict):
        return []
    data, content = source.get("data"), source.get("content")
    texts = [data] if source.get("type") == "text" and isinstance(data, str) else []
    if source.get("type") == "content" and content:
        texts.append(content if isinstance(content, str) else serialised(content))
    context = part.get("context")
    return [*texts, context] if isinstance(context, str) else texts


def _metadata(part: Mapping[str, JsonValue]) -> str:
    """Return an attachment's kind, file name, media type and size in bytes, as far as the part states them."""
    words = [str(part.get("type"))]
    for body in (part, *[value for value in part.values() if isinstance(value, dict)]):
        words += [str(body[key]) for key in _PLAIN_FIELDS if isinstance(body.get(key), str)]
        for key in _CONTENT_FIELDS:
            content = body.get(key)
            if isinstance(content, str):
                words += _size(content)
    return " ".join(words)


def _size(content: str) -> list[str]:
    """Return media type and size of a data URL or bare base64; return a plain URL as it is."""
    if content.startswith(("http://", "https://", "gs://", "s3://")):
        return [content]
    head, comma, _ = content[:200].partition(",")
    kind = [head.removeprefix("data:").partition(";")[0]] if comma and head.startswith("data:") else []
    encoded = len(content) - (len(head) + 1 if kind else 0)
    return [*kind, f"{encoded * 3 // 4} bytes"]
