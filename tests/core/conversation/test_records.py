"""What a finished turn adds to the store."""

from __future__ import annotations

from dataclasses import fields, replace

from tests.core.histories import message
from tidemark.core.conversation.echoes import ChangedEcho
from tidemark.core.conversation.prefix import chain_of
from tidemark.core.conversation.records import TurnRecord
from tidemark.core.conversation.responses import ResponseRecord

ASKED = message(role="user", content="Where?")
RECORD = TurnRecord(
    tenant="ab",
    conversation="cd",
    chain=chain_of("ab", [ASKED]),
    stored_count=1,
    messages=(ASKED,),
    tokens=(5,),
    complete=False,
    model="m",
    action="compacted",
    tokens_before=9,
    tokens_after=8,
    summarized=3,
    created_at=1.5,
    scheme="0f",
    usage={"a": 1},
    owner="o",
    name="n",
    base_branch="h",
    lease_name="l",
    lease_value=b"v",
    imported=True,
    response=ResponseRecord("r", 2, "m", 1.5),
    echo=ChangedEcho("cd", 2, b"t", (2,)),
    max_output_tokens=7,
    left_out_count=11,
    left_out_tokens=13,
    bindings=b"0123456789abcdef",
    prompt_record=b"\n.",
    keep="summaries",
    sender="chat curl/8",
)


def test_an_answered_turn_is_the_same_turn_with_its_answer() -> None:
    """All else of the record is taken along, whatever fields it has."""
    unset = [one.name for one in fields(TurnRecord) if getattr(RECORD, one.name) == one.default]
    assert not unset, "say here what a turn has, or nobody sees it lost"
    reply = message(role="assistant", content="There.")
    assert RECORD.with_reply(reply, 6, {"b": 2}) == replace(
        RECORD,
        chain=chain_of("ab", [ASKED, reply]),
        messages=(ASKED, reply),
        tokens=(5, 6),
        complete=True,
        usage={"b": 2},
    )
