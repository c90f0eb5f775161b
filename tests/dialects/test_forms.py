"""Forms: the field ``model`` is found wherever it stands, however the form is cut into pieces."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.growth import MOST_GROWTH, growth_of
from tidemark.core.errors import InvalidRequest
from tidemark.dialects.forms import (
    MAX_PAIRS,
    ModelField,
    boundary_of,
    check_pairs,
    field_of_form,
    model_of_pairs,
    pairs_with_model,
)

BOUNDARY = b"edge"
PARTS = st.lists(
    st.tuples(
        st.sampled_from([b'name="file"; filename="a\\"b.bin"', b'name="language"', b'name="mode"', b'name="models"']),
        st.binary(max_size=40).map(lambda data: data.replace(b"\r\n--edge", b"")),
    ),
    max_size=4,
)


def form(parts: list[tuple[bytes, bytes]], *, preamble: bytes = b"") -> bytes:
    """A whole form of parts by disposition and value."""
    written = [b"--edge\r\nContent-Disposition: form-data; %b\r\nX-Other: 1\r\n\r\n%b\r\n" % part for part in parts]
    return preamble + b"".join(written) + b"--edge--\r\n"


def fed(body: bytes, cuts: list[int]) -> ModelField:
    """A field that a form was fed to in pieces."""
    field = ModelField(BOUNDARY)
    places = sorted({0, len(body), *(cut % (len(body) + 1) for cut in cuts)})
    for start, end in pairwise(places):
        field.feed(body[start:end])
        if field.is_complete:
            break
    return field


@given(PARTS, PARTS, st.lists(st.integers(0, 2_000), max_size=30), st.sampled_from([b"", b"a preamble\r\n"]))
def test_the_field_is_found_in_any_pieces(
    before: list[tuple[bytes, bytes]], after: list[tuple[bytes, bytes]], cuts: list[int], preamble: bytes
) -> None:
    """Its place is that of its value's own bytes."""
    body = form([*before, (b'name="model"', b"gpt-4o"), *after], preamble=preamble)
    field = fed(body, cuts)
    assert field.model == "gpt-4o"
    assert body[field.start : field.end] == b"gpt-4o"


@given(PARTS, st.lists(st.integers(0, 2_000), max_size=30))
def test_a_form_without_it_is_read_to_its_end(parts: list[tuple[bytes, bytes]], cuts: list[int]) -> None:
    """A file of that name is no field."""
    field = fed(form([*parts, (b'name="model"; filename="m"', b"gpt-4o")]), cuts)
    assert (field.model, field.is_complete) == (None, True)


@pytest.mark.parametrize(
    "disposition", [b"name=model", b'NAME="model"', b'name = "model"', b'filename*="no"; name="mode"; name="model"']
)
def test_dispositions_of_other_clients(disposition: bytes) -> None:
    """RFC 7578, section 4.2, and what clients make of it."""
    field = fed(form([(disposition, b"m")]), [])
    assert field.is_complete


def test_nothing_but_the_field_is_kept() -> None:
    """A gigabyte of a file takes no memory."""
    field = ModelField(BOUNDARY)
    field.feed(b'--edge\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n')
    for _ in range(100):
        field.feed(b"\r\n" * 50_000)
        assert len(field._unread) < 100  # noqa: SLF001 - the bound is the rule
    field.feed(b'\r\n--edge\r\nContent-Disposition: form-data; name="model"\r\n\r\nlate\r\n--edge')
    assert field.model == "late"


@pytest.mark.parametrize(
    "body",
    [
        b"--edge\r\n" + b"h" * 20_000,
        b"--edge" + b" " * 20_000,
        form([(b'name="model"', b"m" * 10_000)]),
        form([(b'name="model"', b"")]),
        form([(b'name="model"', b"\xff")]),
    ],
    ids=["endless head", "endless boundary", "long name", "empty name", "no UTF-8"],
)
def test_a_form_that_cannot_be_read_is_refused(body: bytes) -> None:
    """With a bound on everything that is kept."""
    with pytest.raises(InvalidRequest):
        fed(body, [])


@pytest.mark.parametrize(
    "header",
    [b"multipart/form-data", b"multipart/form-data; boundary=", b"multipart/form-data; boundary=" + b"b" * 300],
)
def test_a_form_needs_a_boundary(header: bytes) -> None:
    """RFC 2046, section 5.1.1."""
    with pytest.raises(InvalidRequest, match="boundary"):
        boundary_of(header)


def test_boundaries_are_read_with_and_without_quotes() -> None:
    """Other parameters may stand around them."""
    assert boundary_of(b'multipart/form-data; charset=utf-8; boundary="a b"') == b"a b"
    assert boundary_of(b"multipart/form-data; boundary=----x; y=z") == b"----x"


def test_a_query_names_a_model_and_keeps_its_other_pairs() -> None:
    """Their bytes, too: an upstream may read them in its own way."""
    query = "a=%20+b&model=my%2Fmodel&c&model="
    assert model_of_pairs(query) == "my/model"
    assert model_of_pairs("a=model&models=x&model=") is None
    assert pairs_with_model("a=%20+b&model=x&c", "org/m:1 2") == "a=%20+b&model=org/m:1+2&c"


def test_a_form_of_pairs_is_read_and_written_in_its_bytes() -> None:
    """A name may have percent signs; what is no UTF-8 stays as it is."""
    pairs = b"a=\xff\xfe&%6Dodel=%c3%A9\xc3\xa9+b".decode("latin-1")
    assert model_of_pairs(pairs) == "\u00e9\u00e9 b"
    assert pairs_with_model(pairs, "new").encode("latin-1") == b"a=\xff\xfe&%6Dodel=new"
    with pytest.raises(InvalidRequest, match="at most"):
        model_of_pairs("model=" + "%61" * 100_000)


def test_a_form_of_pairs_has_a_bound_as_parts_have() -> None:
    """It is a compressed form's way to keep a worker busy."""
    check_pairs("&".join(["a=b"] * MAX_PAIRS))
    with pytest.raises(InvalidRequest, match="1000 pairs"):
        check_pairs("&".join(["a=b"] * (MAX_PAIRS + 1)))


def test_two_models_in_one_form_are_refused() -> None:
    """The upstream that the first one chooses may serve the last one."""
    with pytest.raises(InvalidRequest, match="twice"):
        model_of_pairs("model=a&model=b")
    for second in (b"b", b"a", b""):
        with pytest.raises(InvalidRequest, match="twice"):
            field_of_form(BOUNDARY, form([(b'name="model"', b"a"), (b'name="mode"', b"x"), (b'name="model"', second)]))
    assert model_of_pairs("model=a&model=a") == "a"


@given(PARTS, PARTS)
def test_a_whole_form_is_read_to_its_end(before: list[tuple[bytes, bytes]], after: list[tuple[bytes, bytes]]) -> None:
    """And its one field is where it was found."""
    body = form([*before, (b'name="model"', b"gpt-4o"), *after])
    field = field_of_form(BOUNDARY, body)
    assert (field.model, body[field.start : field.end]) == ("gpt-4o", b"gpt-4o")


@pytest.mark.speed
@pytest.mark.parametrize("disposition", [b'name="model"', b'name="mode"', b"name=model; filename=a", b"model"])
def test_a_form_of_many_parts_is_refused_soon(disposition: bytes) -> None:
    """A form of 4 MB, which takes 12 KB on the wire, took twenty seconds: each field began a new search."""

    def read(count: int) -> None:
        with pytest.raises(InvalidRequest):
            field_of_form(BOUNDARY, form([(disposition, b"m")] * count))

    assert growth_of(read, (1001, 2000, 4000, 8000)) < MOST_GROWTH


@pytest.mark.parametrize("rest", [b';"', b";a", b"; "])
def test_a_head_of_many_parameters_is_refused(rest: bytes) -> None:
    """One head of 16 KB took a tenth of a second."""
    with pytest.raises(InvalidRequest, match="parameters"):
        fed(form([(b'name="model' + rest * 101, b"m")]), [])
    with pytest.raises(InvalidRequest, match="parameters"):
        boundary_of(b"multipart/form-data; boundary=x" + rest * 101)
