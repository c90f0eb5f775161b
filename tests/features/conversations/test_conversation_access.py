"""Who may reach a stored conversation: one rule, asked in one place."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from tidemark.core.conversation.prefix import owner_of
from tidemark.core.conversation.records import ConversationRecord
from tidemark.core.ports import Caller, Route
from tidemark.features.conversations.access import may_reach
from tidemark.pipeline.identify import tenant_of

PROXY = Path(__file__).parents[3] / "proxy" / "tidemark"
ALICE, BOB = Caller(b"alice", ()), Caller(b"bob", ())
HERE = Route("wire", "m", "m", "openai", "http://here.invalid/v1")
ELSEWHERE = Route("wire", "m", "m", "openai", "http://elsewhere.invalid/v1")
RECORD = ConversationRecord(
    id="0" * 48,
    tenant=tenant_of(ALICE, HERE),
    model="m",
    message_count=2,
    total_tokens=10,
    summary_count=0,
    turn_count=1,
    created_at=0.0,
    updated_at=0.0,
    owner=owner_of(ALICE.fingerprint),
)


@pytest.mark.parametrize("route", [None, HERE, ELSEWHERE])
def test_the_operator_reaches_all(route: Route | None) -> None:
    """Whatever is to be done with them."""
    assert may_reach(RECORD, None, route)


def test_a_credential_reaches_what_it_owns_and_nothing_else() -> None:
    """Promise 8: whichever upstream a conversation uses."""
    assert may_reach(RECORD, ALICE)
    assert not may_reach(RECORD, BOB)


def test_messages_go_to_their_own_upstream_only() -> None:
    """The narrower rule for a summary: its owner may read the conversation, and not send it to another upstream."""
    assert may_reach(RECORD, ALICE, HERE)
    assert not may_reach(RECORD, ALICE, ELSEWHERE)
    assert not may_reach(RECORD, BOB, HERE)


def test_a_record_without_an_owner_is_its_tenants() -> None:
    """Such records are older than owners are; without a route nobody reaches them."""
    old = replace(RECORD, owner="")
    assert may_reach(old, ALICE, HERE)
    assert not may_reach(old, BOB, HERE)
    assert not may_reach(old, ALICE)


def test_nothing_else_compares_owners_or_tenants() -> None:
    """The rule is asked in one place: no reader and no endpoint has another one."""
    places = {
        str(path.relative_to(PROXY))
        for package in ("features", "server", "pipeline")
        for path in (PROXY / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Compare)
        and any(isinstance(part, ast.Attribute) and part.attr in ("owner", "tenant") for part in ast.walk(node))
    }
    assert places == {
        "features/conversations/access.py",
        "features/keys/service.py",
        "features/request_log/reader.py",
        "features/tenants/traces.py",
    }  # an entry of the log has one owner; the last one is for the operator alone
