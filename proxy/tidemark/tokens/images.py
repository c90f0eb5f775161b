"""Computes an image's tokens by the published formula of the model's family.

``accounting`` calls it for image parts. No image is decoded: the first bytes of the data URL contain width and height.
Sources: OpenAI, "Images and vision", section "Calculating costs"; Anthropic, "Vision", section "Calculate image
costs"; Google, "Understand and count tokens", section "Multimodal tokens".
"""

from __future__ import annotations

import binascii
import math
from collections.abc import Mapping

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.frozen import frozen

_TILE = 512
_LONGEST_SIDE = 2048
_SHORT_SIDE = 768
_MOST_TILES = 8
"""Tiles of an image of unknown size: the most that fit into 2048 and 768 px (2 x 4)."""
_PATCH = 32
_MOST_PATCHES = 1536
_CLAUDE_SIDE = 1568
_CLAUDE_MOST = 1600
"""Tokens of the largest image that Claude reads; it scales larger ones down."""
_GEMINI_SMALL = 384
_GEMINI_CROP = 768
_GEMINI_MOST = 8
"""Crops that an image of unknown size counts as."""
_HEADER_CHARS = 4_096
_JPEG_CHARS = 400_000
"""Base64 characters that are read of a JPEG: its size follows the EXIF data, which may contain a preview."""
_SHORTEST = 30
"""The fewest bytes of an image; every header that is read below fits."""
_MARK = 0xFF
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_WITHOUT_LENGTH = frozenset({0x01, *range(0xD0, 0xD8)})


@frozen
class ImagePricing:
    """A family's formula: tiles of 512 px over a base, or patches of 32 px times a factor."""

    base: int = 85
    tile: int = 170
    factor: float = 0.0
    """Tokens for one patch; 0 if tiles are billed."""
    pixels: int = 0
    """Pixels for one token, as Claude counts; 0 elsewhere."""
    crop: int = 0
    """Tokens for one crop of 768 px, as Gemini counts; 0 elsewhere."""

    @property
    def key(self) -> str:
        """Return a key that equal formulas share."""
        return f"{self.base}:{self.tile}:{self.factor}:{self.pixels}:{self.crop}"


_BY_PREFIX = (
    # The first matching prefix decides.
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
"""Names that may follow a cloud's prefix."""


def pricing_for(model: str) -> ImagePricing:
    """Return the formula of a model's family, or that of GPT-4o if the family is unknown."""
    name = model.lower().rpartition("/")[2].removeprefix("ft:")
    pricing = next((formula for prefix, formula in _BY_PREFIX if name.startswith(prefix)), None)
    return pricing or next((formula for word, formula in _BY_WORD if word in name), ImagePricing())


def image_tokens(part: Mapping[str, JsonValue], pricing: ImagePricing) -> int:
    """Return the tokens of one image part.

    An image whose size cannot be read (a plain URL, a file id, broken data) counts as the largest that the formula
    allows, because too high a count is safer than an overflow.
    """
    source, detail = _source(part)
    tiled = not (pricing.factor or pricing.pixels or pricing.crop)
    if detail == "low" and tiled:
        return pricing.base
    size = image_size(source)
    if pricing.pixels:
        return min(_CLAUDE_MOST, math.ceil(_scaled_pixels(*size) / pricing.pixels)) if size else _CLAUDE_MOST
    if pricing.crop:
        return pricing.crop * (_crops(*size) if size else _GEMINI_MOST)
    if pricing.factor:
        patches = _patches(*size) if size else _MOST_PATCHES
        return math.ceil(patches * pricing.factor)
    return pricing.base + pricing.tile * (_tiles(*size) if size else _MOST_TILES)


def image_size(source: str) -> tuple[int, int] | None:
    """Return width and height in pixels from a data URL or bare base64; None if they cannot be read."""
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
    """Return an image's data or URL and its ``detail``, from parts of OpenAI's two formats and Anthropic's."""
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
        # Line ends between the groups made the cut fall within a group.
        try:
            return binascii.a2b_base64(source[: characters // 4 * 4].rstrip("=\n") + "==")
        except (binascii.Error, ValueError):
            return b""


def _png(data: bytes) -> tuple[int, int] | None:
    """Read a PNG (W3C, 5.2 and 11.2.2): signature, then IHDR with width and height."""
    if not data.startswith(b"\x89PNG\r\n\x1a\n"):
        return None
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


def _gif(data: bytes) -> tuple[int, int] | None:
    """Read a GIF's logical screen descriptor (GIF89a, 18)."""
    if data[:6] not in (b"GIF87a", b"GIF89a"):
        return None
    return int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")


def _webp(data: bytes) -> tuple[int, int] | None:
    """Read a WebP container (RFC 9649), whose first chunk is VP8X, VP8L or VP8."""
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
    """Walk a JPEG's segments to its start-of-frame marker (ITU T.81, annex B)."""
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
    """Count tiles after the image is fitted into 2048 x 2048 and its shorter side into 768, never enlarged."""
    shrink = min(1.0, _LONGEST_SIDE / max(width, height))
    shrink *= min(1.0, _SHORT_SIDE / (min(width, height) * shrink))
    across, down = max(1, round(width * shrink)), max(1, round(height * shrink))
    return math.ceil(across / _TILE) * math.ceil(down / _TILE)


def _scaled_pixels(width: int, height: int) -> float:
    """Count the pixels after the longer side is scaled down to 1568."""
    shrink = min(1.0, _CLAUDE_SIDE / max(width, height))
    return width * height * shrink**2


def _crops(width: int, height: int) -> int:
    """Count one crop for a small image, else the squares of 768 px that cover it."""
    if max(width, height) <= _GEMINI_SMALL:
        return 1
    return math.ceil(width / _GEMINI_CROP) * math.ceil(height / _GEMINI_CROP)


def _patches(width: int, height: int) -> int:
    """Count patches, after shrinking to whole patches if there would be more than 1536."""
    patches = math.ceil(width / _PATCH) * math.ceil(height / _PATCH)
    if patches <= _MOST_PATCHES:
        return patches
    shrink = math.sqrt(_PATCH**2 * _MOST_PATCHES / (width * height))
    across, down = width * shrink / _PATCH, height * shrink / _PATCH
    shrink *= min(max(1, math.floor(across)) / across, max(1, math.floor(down)) / down)
    fitted = math.ceil(width * shrink / _PATCH) * math.ceil(height * shrink / _PATCH)
    return max(1, min(_MOST_PATCHES, fitted))
