"""How texts are shown: first words as names, code apart, control characters visible, differences marked."""

from __future__ import annotations

import base64
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.console.differences import MAX_SENTENCES, differences
from tidemark.console.rendering import ago
from tidemark.console.texts import described_part, pieces_of, shortened, visible
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.features.conversations.openings import MAX_CHARACTERS, opening_of

PNG = b"\x89PNG\r\n\x1a\n" + b"\x00\x00\x00\rIHDR" + (640).to_bytes(4, "big") + (480).to_bytes(4, "big") + bytes(11_976)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["Hello  there,\nyou."], "Hello there, you."),
        (["<system-reminder>Be nice.</system-reminder>\n\n<a-b>x</a-b> Why?"], "Why?"),
        (["<environment_context>\n<cwd>/x</cwd>\n</environment_context>", "What now?"], "What now?"),
        (["# AGENTS.md instructions for /x\n\n<INSTRUCTIONS>Be brief.</INSTRUCTIONS>", "Mend it."], "Mend it."),
        (["<task>\nMend it.\n</task>\n<environment_details>tabs</environment_details>"], "Mend it."),
        (["<b>Bold</b> words"], "<b>Bold</b> words"),
        (["<environment_context> without an end"], "<environment_context> without an end"),
        (["", " \n"], ""),
        (["w" * 1000], "w" * MAX_CHARACTERS),
    ],
)
def test_first_words_are_a_persons_in_one_line(texts: list[str], expected: str) -> None:
    """What a harness has put before them is left out; what only looks like markup is not."""
    said = [f'{{"role": "user", "content": {_json(text)}}}'.encode() for text in texts]
    before = [b'{"role": "developer", "content": "You are careful."}', b'{"role": "assistant", "content": "Yes?"}']
    assert opening_of(ChatDialect().parse_messages([*before, *said])) == expected


def _json(text: str) -> str:
    return '"' + text.replace("\n", "\\n").replace('"', '\\"') + '"'


def test_a_name_is_cut_between_two_words() -> None:
    """A word that no name can hold is cut within."""
    assert shortened("a short\none") == "a short one"
    assert shortened("word " * 30) == "word " * 11 + "word…"
    assert shortened("w" * 99) == "w" * 60 + "…"


def test_characters_that_nobody_would_see_have_a_sign() -> None:
    """Line ends and tabs stay what they are."""
    assert visible("a\x1b[31m\x00\x7f\x85\u202eb\r\n\tc\rd") == "a␛[31m␀␡⟨U+0085⟩⟨U+202E⟩b\r\n\tc␍d"


def test_what_stands_between_fences_is_code() -> None:
    """A longer fence holds a shorter one, a block without an end goes on to the end, and a line of text is no fence."""
    text = "Sure:\n\n```python\ndef f():\n    pass\n```\n\nAnd:\n~~~~\n~~~\n```\n~~~~\nSo ``` is no fence.\n```\nlast"
    pieces = [(piece.text, piece.is_code, piece.language) for piece in pieces_of(text)]
    assert pieces == [
        ("Sure:", False, ""),
        ("def f():\n    pass", True, "python"),
        ("And:", False, ""),
        ("~~~\n```", True, ""),
        ("So ``` is no fence.", False, ""),
        ("last", True, ""),
    ]


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(PNG).decode()}"}},
            "image/png, 640 × 480, 12 KB",
        ),
        ({"type": "image_url", "image_url": {"url": "https://p.example/a.png"}}, "image, from p.example"),
        ({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}, "audio, wav, 3 bytes"),
        ({"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AAA="}}, None),
        ({"type": "file", "file": {"file_id": "file-1"}}, "file, file-1"),
        ({"type": 5, "image_url": []}, "5"),
        ({}, "part"),
    ],
)
def test_a_part_that_is_no_text_is_named_by_type_and_size(part: dict[str, Any], expected: str | None) -> None:
    """Never by its content."""
    assert described_part(part) == (expected or "application/pdf, a.pdf, 2 bytes")


def own(pieces: Any) -> list[str]:
    """What only one of two texts has."""
    return [text for text, is_own in pieces if is_own]


def test_differences_are_words_of_sentences_that_are_alike_and_else_whole_sentences() -> None:
    """A sentence that one has alone is marked as a whole."""
    left, right = differences("The port is 8080. It is open.\nBye.", "The port is 9090. It is open.\nThanks to all.")
    assert own(left) == ["8080", "Bye."]
    assert own(right) == ["9090", "Thanks to all."]
    assert own(differences("One. Two.", "One.")[0]) == [" Two."]


@given(st.text(alphabet="ab .\n,`"), st.text(alphabet="ab .\n,`"))
def test_pieces_of_a_comparison_make_up_both_texts(left: str, right: str) -> None:
    """Whatever they are; what is not marked is the same in both."""
    pieces = differences(left, right)
    assert tuple("".join(text for text, _ in side) for side in pieces) == (left, right)
    shared = ["".join(text for text, is_own in side if not is_own) for side in pieces]
    assert shared[0] == shared[1]


@pytest.mark.parametrize("block", ["<a-b></a-b>", "<task>", "<a_b>", "<"])
def test_first_words_take_a_bounded_time(block: str) -> None:
    """Of a message of one megabyte that is made to be dear."""
    message = ChatDialect().parse_messages(
        [f'{{"role": "user", "content": "{block * (1_000_000 // len(block))}"}}'.encode()]
    )
    began = time.process_time()
    opening_of(message)
    assert time.process_time() - began < 1


@pytest.mark.parametrize("unit", ["a. b. ", "a ", ". ", "a", "\n", "a b. b a. "])
def test_a_comparison_takes_a_bounded_time(unit: str) -> None:
    """Of texts that are made to be dear; of very long ones nothing is marked."""
    left, right = unit * 40_000, (unit[::-1] + unit) * 20_000
    began = time.process_time()
    differences(left, right)
    few = MAX_SENTENCES // 16
    differences(unit * few, (unit + unit[::-1]) * few)
    assert time.process_time() - began < 2


def test_a_time_is_told_by_how_long_ago_it_was() -> None:
    """In its largest unit; one of another clock is not in the future."""
    assert [ago(1e6 - age, 1e6) for age in (-5, 59, 60, 3599, 3600, 86_399, 86_400, 9e5)] == [
        "just now",
        "just now",
        "1 min ago",
        "59 min ago",
        "1 h ago",
        "23 h ago",
        "1 d ago",
        "10 d ago",
    ]
