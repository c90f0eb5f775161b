"""What the headers of a request may say."""

from __future__ import annotations

import pytest

from tidemark.core.errors import InvalidRequest
from tidemark.server.headers import read_controls


@pytest.mark.parametrize(
    ("sent", "name"),
    [
        (b"plain", "plain"),
        ("旅行".encode(), "旅行"),
        ("رحلة".encode(), "رحلة"),
        ("caf\u00e9".encode(), "caf\u00e9"),
        (b"caf\xe9", "caf\u00e9"),
        ("旅 ".encode(), "旅"),
        ("旅".encode() * 256, "旅" * 256),
    ],
)
def test_the_name_of_a_conversation_may_be_utf_8(sent: bytes, name: str) -> None:
    """As the name of an import, in the address, is. Older clients send ISO 8859-1."""
    assert read_controls([(b"x-tidemark-conversation", sent)]).conversation == name


@pytest.mark.parametrize("sent", [b"", "旅".encode() * 257, "a\u200bb".encode(), b"a\x7f"])
def test_what_nobody_could_read_is_no_name(sent: bytes) -> None:
    """Invisible characters, and more than 256."""
    with pytest.raises(InvalidRequest, match="1 to 256 printable characters"):
        read_controls([(b"x-tidemark-conversation", sent)])
