"""How the console shows what people and models write: as text, with code set apart and control characters visible.

Nothing here makes HTML; the templates escape every piece. What a form sends back does not pass here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from tidemark.core.frozen import frozen
from tidemark.tokens.images import image_size

NAME_CHARACTERS = 60
_FENCES = ("```", "~~~")
_UNSEEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202d\u202e]|\r(?!\n)")
"""Control characters, and those that turn the direction of all that follows."""
_PICTURES = 0x2400
"""Where Unicode has the pictures of the first 32 control characters."""
_DELETE = 0x7F
_KILO = 1000


@frozen
class ShownPiece:
    """A part of a text."""

    text: str
    is_code: bool = False
    language: str = ""


def visible(text: str) -> str:
    """Return a text with a sign for each character that nobody would see."""
    return _UNSEEN.sub(_sign, text)


def _sign(found: re.Match[str]) -> str:
    code = ord(found[0])
    return chr(_PICTURES + code) if code < ord(" ") else "\u2421" if code == _DELETE else f"\u27e8U+{code:04X}\u27e9"


def shortened(text: str, most: int = NAME_CHARACTERS) -> str:
    """Return a text in one line, cut between two words if it is long."""
    line = " ".join(text.split())
    if len(line) <= most:
        return line
    head = line[:most]
    return (head.rpartition(" ")[0] if " " in head[most // 2 :] else head) + "…"


def pieces_of(text: str) -> Sequence[ShownPiece]:
    """Divide a text into what stands between fences (CommonMark 0.31, section 4.5) and the rest, in their order.

    A block without an end goes on to the end of the text. Fences, and empty lines beside them, are left out.
    """
    return [*_divided(text)] if any(fence in text for fence in _FENCES) else [ShownPiece(text)]


def _divided(text: str) -> Iterator[ShownPiece]:
    lines, fence, language = list[str](), "", ""
    for line in text.splitlines(keepends=True):
        content = line.strip()
        mark = content[: len(content) - len(content.lstrip(content[:1]))] if content.startswith(_FENCES) else ""
        opens = bool(mark) and not fence and not (mark[0] == "`" and "`" in content[len(mark) :])
        closes = bool(mark) and bool(fence) and mark[0] == fence[0] and mark == content and len(mark) >= len(fence)
        if not opens and not closes:
            lines.append(line)
            continue
        if lines or closes:
            yield ShownPiece("".join(lines).strip("\n"), bool(fence), language)
        lines, fence, language = [], mark if opens else "", content[len(mark) :].strip() if opens else ""
    if lines or fence:
        yield ShownPiece("".join(lines).strip("\n"), bool(fence), language)


def described_part(part: Mapping[str, Any]) -> str:
    """Name a part of a message that is no text by its type and size; it is never loaded."""
    kind = str(part.get("type") or "part")
    source = part.get(kind)
    held = source if isinstance(source, dict) else {"url": source} if isinstance(source, str) else part
    data = next((held[name] for name in ("url", "data", "file_data") if isinstance(held.get(name), str)), "")
    name = next((held[name] for name in ("filename", "format", "file_id") if isinstance(held.get(name), str)), "")
    facts = [kind.removesuffix("_url").removeprefix("input_").replace("_", " "), *([name] if name else [])]
    if data.startswith("data:"):
        head, _, data = data.partition(",")
        facts[0] = head.removeprefix("data:").partition(";")[0] or facts[0]
        size = image_size(f"{head},{data}") if facts[0].startswith("image/") else None
        facts += [f"{size[0]} \N{MULTIPLICATION SIGN} {size[1]}"] if size else []
    elif "://" in data:
        return ", ".join([*facts, f"from {urlsplit(data).netloc or data[:NAME_CHARACTERS]}"])
    return ", ".join([*facts, *([_bytes(len(data) * 3 // 4 - data[-2:].count("="))] if data else [])])


def _bytes(count: int) -> str:
    return f"{count} bytes" if count < _KILO else f"{count / _KILO:,.0f} KB"
