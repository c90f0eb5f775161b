"""The fields of a stored summary, and how they are read back; ``codec.py`` packs and seals them."""

from __future__ import annotations

import msgspec

from tidemark.core.conversation.native import NativeForm
from tidemark.core.conversation.summary import Cause, Maker, MaskedResults, PrefixSummary, Strategy, SummaryRecipe
from tidemark.core.receipt import DetailKind, KindCount, Receipt


class SummaryFields(msgspec.Struct, array_like=True, frozen=True):
    """A summary as msgpack has it; fields may be added at the end."""

    prefix: bytes
    covered: int
    text: str
    strategy: Strategy
    template: str
    version: int
    model: str
    made_by: Maker
    cause: Cause
    created_at: float
    previous: bytes | None
    tokens: int
    absorbed: tuple[bytes, ...] = ()
    edited: bool = False
    written_with: str = ""
    receipt: tuple[tuple[DetailKind, int, int, int], ...] = ()
    """Each kind with its total, and how many are kept and shortened."""
    first_question: int = 0
    stated: str = ""
    model_text: tuple[tuple[DetailKind, int, int, int, tuple[str, ...]], ...] = ()
    """The counts of the receipt that earlier versions cannot read, whole: ``statements``, and what nobody said."""
    native: tuple[str, str, tuple[bytes, ...], int, bytes] | None = None
    """The fields of ``NativeForm``, in their order."""
    chosen: bool = False
    masked: _Masked | None = None
    results: tuple[str, ...] = ()


class _Masked(msgspec.Struct, array_like=True, frozen=True):
    base: SummaryFields | None
    lines: tuple[tuple[int, str], ...]


def fields_of(summary: PrefixSummary) -> SummaryFields:
    """Return the fields that a summary is stored as."""
    recipe, masked = summary.recipe, summary.masked
    return SummaryFields(
        summary.prefix,
        summary.covered,
        summary.text,
        recipe.strategy,
        recipe.template,
        recipe.version,
        recipe.model,
        summary.made_by,
        summary.cause,
        summary.created_at,
        summary.previous,
        summary.tokens,
        summary.absorbed,
        summary.edited,
        summary.written_with,
        tuple(
            (count.kind, count.total, count.verbatim_count, count.shortened_count)
            for count in summary.receipt
            if count.kind != "statements"
        ),
        summary.first_question,
        summary.stated,
        tuple(
            (count.kind, count.total, count.verbatim_count, count.shortened_count, count.unsupported)
            for count in summary.receipt
            if count.kind == "statements" or count.unsupported
        ),
        _native_fields(summary.native),
        summary.chosen,
        None if masked is None else _Masked(fields_of(masked.base) if masked.base else None, masked.lines),
        summary.results,
    )


def summary_of(record: SummaryFields) -> PrefixSummary:
    """Return the summary that was stored as these fields."""
    masked = record.masked
    return PrefixSummary(
        prefix=record.prefix,
        covered=record.covered,
        text=record.text,
        recipe=SummaryRecipe(record.strategy, record.template, record.version, record.model),
        made_by=record.made_by,
        cause=record.cause,
        created_at=record.created_at,
        previous=record.previous,
        tokens=record.tokens,
        absorbed=record.absorbed,
        edited=record.edited,
        written_with=record.written_with,
        receipt=_receipt_of(record),
        first_question=record.first_question,
        stated=record.stated,
        native=None if record.native is None else NativeForm(*record.native),
        chosen=record.chosen,
        results=record.results,
        masked=None
        if masked is None
        else MaskedResults(summary_of(masked.base) if masked.base else None, masked.lines),
    )


def _native_fields(native: NativeForm | None) -> tuple[str, str, tuple[bytes, ...], int, bytes] | None:
    if native is None:
        return None
    return (native.dialect, native.model, native.raws, native.tokens, native.stands_for)


def _receipt_of(record: SummaryFields) -> Receipt:
    counts = {count[0]: KindCount(*count) for count in record.receipt}
    return tuple((counts | {count[0]: KindCount(*count) for count in record.model_text}).values())
