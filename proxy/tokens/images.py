"""What an image costs, by the published formula of the model's family, from the header of its data.

Below ``counting``. No image is decoded: a few bytes of the data URL tell its width and height.
Sources: OpenAI, "Images and vision", section "Calculating costs"; Anthropic, "Vision", section "Calculate image
costs"; Google, "Understand and count tokens", section "Multimodal tokens".
"""

from __future__ import annotations

import binascii
import math
from collections.abc import Mapping
from dataclasses import dataclass

from proxy.core.conversation.messages import JsonValue

_TILE = 512
_LONGEST_SIDE = 2048
_SHORT_SIDE = 768
_MOST_TILES = 8
"""Of an image whose size is not known: the most that fitting into 2048 and 768 leaves (2 x 4)."""
_PATCH = 32
_MOST_PATCHES = 1536
_CLAUDE_SIDE = 1568
_CLAUDE_MOST = 1600
"""Tokens of the largest image that Claude looks at; it makes larger ones smaller."""
_GEMINI_SMALL = 384
_GEMINI_CROP = 768
_GEMINI_MOST = 8
"""Crops that an image of unknown size counts as."""
_HEADER_CHARS = 4_096
_JPEG_CHARS = 400_000
"""base64 characters looked at: a JPEG's size stands after its EXIF data, which may hold a preview picture."""
_SHORTEST = 30
"""Bytes; no image is shorter, and every header read below fits."""
_MARK = 0xFF
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_WITHOUT_LENGTH = frozenset({0x01, *range(0xD0, 0xD8)})


@dataclass(frozen=True, slots=True)
class ImagePricing:
    """A family's formula: tiles of 512 px over a base, or patches of 32 px times a factor."""

    base: int = 85
    tile: int = 170
    factor: float = 0.0
    """Tokens a patch; 0 where tiles are billed."""
    pixels: int = 0
    """Pixels a token, as Claude counts; 0 elsewhere."""
    crop: int = 0
    """Tokens a crop of 768 px, as Gemini counts; 0 elsewhere."""

    @property
    def key(self) -> str:
        """The same for pricings that are alike."""
        return f"{self.base}:{self.tile}:{self.factor}:{self.pixels}:{self.crop}"


_BY_PREFIX = (
    # The first prefix that fits decides.
    ("gpt-4o-mini", ImagePricing(2833, 5667)),
    ("gpt-4.1-mini", ImagePricing(factor=1.62)),
    ("gpt-4.1-nano", ImagePricing(factor=2.46)),
    ("gpt-5-mini", ImagePricing(factor=1.62)),
    ("gpt-5-nano", ImagePricing(factor=2.46)),
    ("o4-mini", ImagePricing(factor=1.72)),
    ("gpt-5", ImagePricing(70, 140)),
    ("o1", ImagePricing(75, 150)),
    ("o3", ImagePricing(75, 150)),
    ("computer-use-preview", ImagePricing(65, 129)),
)
_BY_WORD = (("claude", ImagePricing(pixels=750)), ("gemini", ImagePricing(crop=258)))
"""Names that stand behind a cloud's prefix."""


def pricing_for(model: str) -> ImagePricing:
    """The formula of a model's family; that of GPT-4o where the family is not known."""
    name = model.lower().rpartition("/")[2].removeprefix("ft:")
    found = next((pricing for prefix, pricing in _BY_PREFIX if name.startswith(prefix)), None)
    return found or next((pricing for word, pricing in _BY_WORD if word in name), ImagePricing())


def image_tokens(part: Mapping[str, JsonValue], pricing: ImagePricing) -> int:
    """Tokens of one image part.

    An image whose size cannot be read (a plain URL, a file id, broken data) counts as the largest that the
    formula allows: too many rather than an overflow.
    """
    source, detail = _source(part)
    tiled = not (pricing.factor or pricing.pixels or pricing.crop)
    if detail == "low" and tiled:
        return pricing.base
    size = image_size(source)
    if pricing.pixels:
        return min(_CLAUDE_MOST, math.ceil(_seen_pixels(*size) / pricing.pixels)) if size else _CLAUDE_MOST
    if pricing.crop:
        return pricing.crop * (_crops(*size) if size else _GEMINI_MOST)
    if pricing.factor:
        patches = _patches(*size) if size else _MOST_PATCHES
        return math.ceil(patches * pricing.factor)
    return pricing.base + pricing.tile * (_tiles(*size) if size else _MOST_TILES)


def image_size(source: str) -> tuple[int, int] | None:
    """Width and height in pixels out of a data URL or bare base64; None where they cannot be told."""
    if source.startswith("data:"):
        head, mark, source = source[:_JPEG_CHARS].partition(";base64,")
        if not mark or not head.startswith("data:image/"):
            return None
    data = _decoded(source, _HEADER_CHARS)
    if len(data) < _SHORTEST:
        return None
    if data.startswith(b"\xff\xd8"):
        size = _jpeg(data) or _jpeg(_decoded(source, _JPEG_CHARS))
    else:
        size = _png(data) or _gif(data) or _webp(data)
    return size if size and min(size) > 0 else None


def _source(part: Mapping[str, JsonValue]) -> tuple[str, str]:
    """Where the image is and its ``detail``; OpenAI's chat and Responses parts and Anthropic's are known."""
    image = part.get("image_url")
    if isinstance(image, dict):
        return _text(image.get("url")), _text(image.get("detail"))
    if isinstance(image, str):
        return image, _text(part.get("detail"))
    source = part.get("source")
    return (_text(source.get("data")) if isinstance(source, dict) else ""), ""


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""


def _decoded(source: str, characters: int) -> bytes:
    try:
        return binascii.a2b_base64(source[: characters // 4 * 4])
    except (binascii.Error, ValueError):
        # Cut within a group, because line ends stand between the groups.
        try:
            return binascii.a2b_base64(source[: characters // 4 * 4].rstrip("=\n") + "==")
        except (binascii.Error, ValueError):
            return b""


def _png(data: bytes) -> tuple[int, int] | None:
    """PNG (W3C), 5.2 and 11.2.2: signature, then IHDR with width and height."""
    if not data.startswith(b"\x89PNG\r\n\x1a\n"):
        return None
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


def _gif(data: bytes) -> tuple[int, int] | None:
    """GIF89a, 18: the logical screen descriptor."""
    if data[:6] not in (b"GIF87a", b"GIF89a"):
        return None
    return int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")


def _webp(data: bytes) -> tuple[int, int] | None:
    """WebP container (RFC 9649): VP8X, VP8L or VP8 as the first chunk."""
    if data[:4] != b"RIFF" or data[8:12] != b"WEBP":
        return None
    kind = data[12:16]
    if kind == b"VP8X":
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if kind == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 ":
        return int.from_bytes(data[26:28], "little") & 0x3FFF, int.from_bytes(data[28:30], "little") & 0x3FFF
    return None


def _jpeg(data: bytes) -> tuple[int, int] | None:
    """JPEG (ITU T.81, annex B): walk the segments to a start-of-frame marker."""
    place = 2
    while place + 9 <= len(data):
        if data[place] != _MARK:
            return None
        marker = data[place + 1]
        if marker == _MARK:  # a fill byte
            place += 1
        elif marker in _FRAMES:
            height, width = data[place + 5 : place + 7], data[place + 7 : place + 9]
            return int.from_bytes(width, "big"), int.from_bytes(height, "big")
        elif marker in _WITHOUT_LENGTH:
            place += 2
        else:
            place += 2 + max(int.from_bytes(data[place + 2 : place + 4], "big"), 2)
    return None


def _tiles(width: int, height: int) -> int:
    """Tiles after fitting into 2048 x 2048 and then the shorter side into 768; images are never enlarged."""
    shrink = min(1.0, _LONGEST_SIDE / max(width, height))
    shrink *= min(1.0, _SHORT_SIDE / (min(width, height) * shrink))
    across, down = max(1, round(width * shrink)), max(1, round(height * shrink))
    return math.ceil(across / _TILE) * math.ceil(down / _TILE)


def _seen_pixels(width: int, height: int) -> float:
    """Pixels after the longer side was brought to 1568."""
    shrink = min(1.0, _CLAUDE_SIDE / max(width, height))
    return width * height * shrink**2


def _crops(width: int, height: int) -> int:
    """One for a small image, else as many squares of 768 px as cover it."""
    if max(width, height) <= _GEMINI_SMALL:
        return 1
    return math.ceil(width / _GEMINI_CROP) * math.ceil(height / _GEMINI_CROP)


def _patches(width: int, height: int) -> int:
    """Patches, after shrinking to whole patches where there would be more than 1536."""
    patches = math.ceil(width / _PATCH) * math.ceil(height / _PATCH)
    if patches <= _MOST_PATCHES:
        return patches
    shrink = math.sqrt(_PATCH**2 * _MOST_PATCHES / (width * height))
    across, down = width * shrink / _PATCH, height * shrink / _PATCH
    shrink *= min(max(1, math.floor(across)) / across, max(1, math.floor(down)) / down)
    fitted = math.ceil(width * shrink / _PATCH) * math.ceil(height * shrink / _PATCH)
    return max(1, min(_MOST_PATCHES, fitted))
