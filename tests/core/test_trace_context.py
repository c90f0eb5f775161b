"""The W3C trace context: what is well-formed goes on byte for byte, and what is malformed goes nowhere."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.core.trace_context import MAX_MEMBERS, is_tracestate, read_traceparent, traced_lines

PARENT = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
"""The recommendation's own example."""
TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"

digits = st.sampled_from("0123456789abcdef")


def hexadecimal(length: int) -> st.SearchStrategy[str]:
    """So many digits that are not all zero."""
    return st.lists(digits, min_size=length, max_size=length).map("".join).filter(lambda text: set(text) != {"0"})


trace_ids, span_ids = hexadecimal(32), hexadecimal(16)
flags = st.lists(digits, min_size=2, max_size=2).map("".join)
later_versions = flags.filter(lambda version: version not in ("00", "ff"))
keys = st.from_regex(re.compile(r"\A[a-z][a-z0-9_*/-]{0,20}(@[a-z][a-z0-9_*/-]{0,13})?\Z", re.ASCII))
visible = st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters=",=")
values = st.text(visible, min_size=1, max_size=30)


@given(trace_ids, span_ids, flags)
def test_every_value_of_the_first_version_is_read(trace_id: str, span_id: str, flag: str) -> None:
    """Section 3.2.2."""
    assert read_traceparent(f"00-{trace_id}-{span_id}-{flag}".encode()) == trace_id


@given(later_versions, trace_ids, span_ids, flags, st.sampled_from(["", "-", "-more", "-a-b.c"]))
def test_a_later_version_is_read_as_far_as_it_is_known(
    version: str, trace_id: str, span_id: str, flag: str, rest: str
) -> None:
    """Section 3.2.4: a later version may have more after the flags."""
    assert read_traceparent(f"{version}-{trace_id}-{span_id}-{flag}{rest}".encode()) == trace_id


@given(st.binary(max_size=80))
def test_any_other_bytes_are_no_trace(value: bytes) -> None:
    """Whatever is read has the form of the recommendation."""
    trace_id = read_traceparent(value)
    assert not trace_id or re.match(rb"[0-9a-f]{2}-" + trace_id.encode() + rb"-[0-9a-f]{16}-[0-9a-f]{2}", value)


@given(st.integers(0, len(PARENT) - 1), st.binary(min_size=1, max_size=1))
def test_one_changed_byte_never_gives_an_id_that_is_not_in_the_value(place: int, byte: bytes) -> None:
    """A byte in another place of the value may be another flag, another id, or nothing."""
    changed = PARENT[:place] + byte + PARENT[place + 1 :]
    assert read_traceparent(changed) in ("", changed[3:35].decode("latin-1"))


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        b"00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        b"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        b"00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
        b"01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01more",
        b"00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
        PARENT + b"\n",
        PARENT + b", " + PARENT,
    ],
)
def test_what_the_recommendation_calls_invalid_is_no_trace(value: bytes) -> None:
    """Version ff, ids of zeros, capitals, and anything of another length."""
    assert read_traceparent(value) == ""
    assert traced_lines([(b"traceparent", value), (b"tracestate", b"a=b"), (b"x", b"y")]) == ("", [(b"x", b"y")])


@given(st.dictionaries(keys, values, min_size=1, max_size=MAX_MEMBERS), st.integers(0, 3))
def test_a_list_of_members_is_passed_on_in_any_number_of_lines(members: dict[str, str], empty: int) -> None:
    """Section 3.3.1: members may have blanks around them, and may be empty."""
    texts = [f"{key}={value}".encode() for key, value in members.items()]
    assert is_tracestate([b" ,\t".join([*texts, *[b""] * empty])])
    lines = [(b"traceparent", PARENT), *((b"tracestate", text) for text in texts)]
    assert traced_lines(lines) == (TRACE_ID, lines)


@pytest.mark.parametrize(
    "value",
    [b"a", b"=b", b"A=b", b"a=", b"a=b=c", b"a=b,a=c", b"a b=c", b"a=\x7f", b"a=b" + b"c" * 256, b"k" * 257 + b"=v"],
)
def test_a_malformed_list_is_left_out_alone(value: bytes) -> None:
    """Section 4.3: the trace goes on without the list."""
    lines = [(b"x", b"y"), (b"traceparent", PARENT), (b"tracestate", value)]
    assert traced_lines(lines) == (TRACE_ID, lines[:2])


def test_a_list_of_too_many_members_is_left_out() -> None:
    """Section 3.3.1.1."""
    members = [b"k%d=v" % number for number in range(MAX_MEMBERS + 1)]
    assert is_tracestate([b",".join(members[:-1])])
    assert not is_tracestate([b",".join(members)])


def test_two_parents_or_none_are_no_trace() -> None:
    """A list without its parent belongs to nothing."""
    assert traced_lines([(b"traceparent", PARENT)] * 2) == ("", [])
    assert traced_lines([(b"tracestate", b"a=b")]) == ("", [])
