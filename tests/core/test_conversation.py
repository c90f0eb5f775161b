"""What a finished turn adds to the store."""

from __future__ import annotations

from dataclasses import fields, replace

from proxy.core.conversation import TurnRecord
from proxy.core.messages import Message, digest_of
from proxy.core.prefix import chain_of

ASKED = Message(raw=b'{"role":"user","content":"?"}', role="user", text="?", digest=digest_of(b"?"))
SAID = Message(raw=b'{"role":"assistant","content":"!"}', role="assistant", text="!", digest=digest_of(b"!"))
CHAIN = chain_of("t", [ASKED], conversation="its name")
TURN = TurnRecord(
    tenant="t",
    conversation=CHAIN.family + "0" * 16,
    chain=CHAIN,
    known=1,
    messages=(ASKED,),
    tokens=(2,),
    complete=False,
    model="model",
    action="reused",
    tokens_before=30,
    tokens_after=20,
    summarized=4,
    created_at=5.5,
    scheme="scheme",
    usage={"made": "up"},
    owner="owner",
    name="its name",
    head="1" * 16,
    lease="turn:1",
    held=b"7:",
)
USAGE = {"prompt_tokens": 3}


def test_every_field_of_the_turn_that_ends_has_a_value_of_its_own() -> None:
    """Else the tests below could not tell one field from another; a new field must be given one here."""
    told = [getattr(TURN, one.name) for one in fields(TURN)]
    assert all(told[:6] + told[7:])
    assert len({repr(one) for one in told}) == len(told)


def test_a_turn_that_ended_differs_by_its_ending_only() -> None:
    """All else is what was known when the request was sent."""
    for complete in (False, True):
        assert TURN.ended(USAGE, complete=complete) == replace(TURN, usage=USAGE, complete=complete)


def test_a_reply_is_the_last_message_of_its_turn() -> None:
    """With its tokens, and its link in the chain."""
    ended = TURN.ended(USAGE, complete=True, reply=SAID, reply_tokens=9)
    assert ended == replace(
        TURN, usage=USAGE, complete=True, chain=CHAIN.extended([SAID]), messages=(ASKED, SAID), tokens=(2, 9)
    )
    assert ended.chain.family == CHAIN.family
