"""What is recalled stays in its place until the next compaction, so that each request is the beginning of the next."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

import httpx
import pytest
import respx

from tests.request.conftest import Bench, Client
from tests.request.talk import Said, assistant, history, long, user
from tests.support.scripted import Received, says
from tests.upstream import anthropic
from tidemark.core.recall.epoch import EpochRecall
from tidemark.core.recall.quotation import CLOSING, OPENING
from tidemark.core.report import Report
from tidemark.pipeline.notices import NOT_READY
from tidemark.pipeline.recall import Recaller
from tidemark.pipeline.values import FittedRequest

FACTS = (
    ("The archive's door opens with the code 7731-QX.", "Which code opens the door of the archive?"),
    ("My sister Ingrid keeps a kiln in Lisbon.", "Where does Ingrid keep the kiln?"),
    ("Doctor Okafor forbade me plums and kiwis.", "What did Doctor Okafor forbid me?"),
    ("Tomasz paid Halvorsen for the loom from Tallinn.", "For what did Tomasz pay Halvorsen?"),
)
OTHER_FACTS = (
    "On 7 June 2021 Petra Zielinska sold 412 organ pipes to Brauer for 18,730 francs.",
    "Flight QX4417 left Murmansk at 05:52 on 19 January 2020 with 83 huskies and 9 sledges.",
    "Bishop Adeyemi printed 6,400 leaflets on 28 August 2018 for 2,115 shillings in Kisumu.",
)
"""They fill the small summary, so that it lacks the others."""
RECALL = ", max_summary_tokens: 64, recall: {max_tokens: 1200}"
WINDOW = 4000
SMALL_TALK = user("Thanks! Now write a haiku about rain.")


@pytest.fixture
def recalling(bench: Bench, request: pytest.FixtureRequest) -> Client:
    """A client of a Tidemark that recalls up to 1,200 tokens from one compaction to the next."""
    bench.upstream.script = says("Noted.")
    return bench.client(request.node.nodeid, window=WINDOW, more=RECALL)


def beginning() -> list[Said]:
    """A talk that needs a summary, with all facts among its older messages, far from each other."""
    talk = history(44)
    for number, (fact, _) in enumerate(FACTS):
        talk[12 * number + 2 : 12 * number + 4] = [user(fact), assistant("I will remember it.")]
    for number, fact in enumerate(OTHER_FACTS):
        talk[12 * number + 6 : 12 * number + 8] = [user(fact), assistant("I see.")]
    return talk


def talk_to(count: int, said: Sequence[Said] = ()) -> list[Said]:
    """The talk with the first questions, each but the last one answered."""
    talk = [*(said or beginning())]
    for number, (_, question) in enumerate(FACTS[:count]):
        talk += [user(question), assistant(f"As you said, {number}.")]
    return talk[:-1]


def messages_of(request: Received) -> bytes:
    """The bytes of a request's messages, without the end of their list."""
    return request.body.partition(b'"messages":')[2].rpartition(b"]")[0]


def recalled(request: Received) -> list[str]:
    """The texts of the forwarded messages that have a quotation."""
    return [one["content"] for one in request.messages if OPENING in str(one["content"])]


def tokens(got: httpx.Response) -> int:
    """What the header reports."""
    return int(got.headers["x-tidemark-recalled-tokens"])


def test_each_request_is_the_beginning_of_the_next_one(bench: Bench, recalling: Client) -> None:
    """Promise 5, with recall: the provider's cache has all of the request before; the header reports all tokens."""
    reported, before = 0, b""
    for count in (1, 2, 3):
        got = recalling.chat(talk_to(count))
        assert got.headers["x-tidemark-action"] == ("compacted" if count == 1 else "reused")
        assert len(recalled(bench.upstream.last)) == count
        assert messages_of(bench.upstream.last).startswith(before)
        assert reported < tokens(got) <= 1200
        reported, before = tokens(got), messages_of(bench.upstream.last)
    got = recalling.chat([*talk_to(3), assistant("So it is."), SMALL_TALK])
    assert messages_of(bench.upstream.last).startswith(before)
    assert bench.upstream.last.messages[-1] == SMALL_TALK
    assert tokens(got) == reported


def test_the_tokens_after_include_all_recalled_ones(bench: Bench, recalling: Client) -> None:
    """The count of the forwarded request by itself is the one that the header of the whole one reports."""
    recalling.chat(talk_to(1))
    got = recalling.chat(talk_to(3))
    again = recalling.post({**bench.upstream.last.json, "model": "small"}, summarize="off")
    assert again.headers["x-tidemark-tokens-before"] == got.headers["x-tidemark-tokens-after"]


def test_a_message_is_recalled_once(bench: Bench, recalling: Client) -> None:
    """Another question about it finds it in context."""
    fact = FACTS[0][0]
    recalling.chat(talk_to(1))
    recalling.chat([*talk_to(1), assistant("7731-QX."), user("Does the code of the archive's door have letters?")])
    assert json.dumps(bench.upstream.last.json).count(fact) == 1


def test_questions_from_before_the_compaction_recall_nothing(bench: Bench, recalling: Client) -> None:
    """They were answered with the whole conversation, or with another summary."""
    talk = [*beginning()[:-8], user(FACTS[1][1]), assistant("In Lisbon."), *beginning()[-8:]]
    got = recalling.chat(talk_to(1, talk))
    assert got.headers["x-tidemark-action"] == "compacted"
    assert user(FACTS[1][1]) in bench.upstream.last.messages
    assert len(recalled(bench.upstream.last)) == 1


def test_another_worker_recalls_the_same_in_the_same_places(bench: Bench, recalling: Client) -> None:
    """It has no cache and no index, and was started in the middle; a repeated request is the same, too."""
    for count in (1, 2, 3):
        recalling.chat(talk_to(count))
    sent = bench.upstream.last.body
    recalling.chat(talk_to(3))
    assert bench.upstream.last.body == sent
    bench.client(recalling.key, window=WINDOW, more=RECALL).chat(talk_to(3))
    assert bench.upstream.last.body == sent


def test_another_worker_knows_the_first_question_of_a_prepared_summary(bench: Bench, recalling: Client) -> None:
    """The store has it since the summary came into use, so that older questions recall nothing there either."""
    talk, compacted = talk_to(1), 0
    while compacted < 2:
        compacted += recalling.chat(talk).headers["x-tidemark-action"] == "compacted"
        bench.settle()
        number = len(talk)
        talk += [assistant(long(1000 + number, 90)), user(FACTS[2][1] if number % 4 else long(1001 + number, 90))]
    for _, question in FACTS[:2]:
        talk += [assistant("I see."), user(question)]
        recalling.chat(talk)
    sent = bench.upstream.last.body
    assert recalled(bench.upstream.last)
    bench.client(recalling.key, window=WINDOW, more=RECALL).chat(talk)
    assert bench.upstream.last.body == sent


def test_a_fork_keeps_what_was_recalled_before_it(bench: Bench, recalling: Client) -> None:
    """Whoever goes back and asks something else gets the originals for that, and has the rest in the cache."""
    recalling.chat(talk_to(1))
    first = messages_of(bench.upstream.last)
    recalling.chat(talk_to(2))
    recalling.chat([*talk_to(1), assistant("As you said, 0."), user(FACTS[3][1])])
    assert messages_of(bench.upstream.last).startswith(first)
    assert [FACTS[0][0] in text for text in recalled(bench.upstream.last)] == [True, False]
    assert FACTS[3][0] in recalled(bench.upstream.last)[1]
    assert FACTS[1][0] not in json.dumps(bench.upstream.last.json)


def test_a_question_from_before_the_compaction_that_is_asked_again_recalls_nothing(
    bench: Bench, recalling: Client
) -> None:
    """Of a client that goes back: the next request could not know what was recalled for it."""
    talk = [*beginning()[:-8], user(FACTS[3][1]), assistant("For a loom."), *beginning()[-8:]]
    recalling.chat(talk_to(1, talk))
    place = talk.index(user(FACTS[3][1]))
    assert recalling.chat(talk[: place + 1]).headers["x-tidemark-action"] == "reused"
    before = messages_of(bench.upstream.last)
    recalling.chat([*talk[: place + 1], assistant("For a loom."), SMALL_TALK])
    assert messages_of(bench.upstream.last).startswith(before)


def test_messages_that_leave_until_their_index_is_ready_are_told() -> None:
    """A worker that begins in the middle may not know in time what was recalled for earlier questions."""
    fitted = FittedRequest((), Report(conversation="c", tenant="t", limit=100))
    recaller, nothing = Recaller(cast("Any", None)), cast("Any", None)
    partial = EpochRecall(outcome="not_ready", is_partial=True)
    assert recaller.put_back(nothing, fitted, partial).report.warning == NOT_READY
    assert recaller.put_back(nothing, fitted, EpochRecall(outcome="not_ready")).report.warning is None


def test_an_edited_question_recalls_for_its_new_words(bench: Bench, recalling: Client) -> None:
    """The one before it stays as it was, and so does what was recalled for it."""
    recalling.chat(talk_to(1))
    first = messages_of(bench.upstream.last)
    recalling.chat(talk_to(3))
    edited = talk_to(3)
    edited[-3] = user(FACTS[3][1])
    recalling.chat(edited)
    assert messages_of(bench.upstream.last).startswith(first)
    found = [
        next(number for number, (fact, _) in enumerate(FACTS) if fact in one) for one in recalled(bench.upstream.last)
    ]
    assert found == [0, 3, 2]


def test_a_summary_that_a_person_wrote_is_looked_at_anew(bench: Bench, recalling: Client) -> None:
    """The quotation belongs to one text of the summary: what the new one tells is not recalled beside it."""
    got = recalling.chat(talk_to(1))
    assert recalled(bench.upstream.last)
    conversation = got.headers["x-tidemark-conversation"]
    text = f"The user said so: {FACTS[0][0]}"
    changed = recalling.http.post(
        f"/tidemark/conversations/{conversation}/summaries", json={"text": text}, headers=recalling.headers()
    )
    assert changed.status_code == 200, changed.text
    recalling.chat(talk_to(1))
    assert FACTS[0][0] in str(bench.upstream.last.messages[0]["content"])
    assert bench.upstream.last.messages[-1] == user(FACTS[0][1])


def test_what_was_recalled_stays_until_the_next_summary_comes_into_use(bench: Bench, recalling: Client) -> None:
    """Where it fits no more, a prepared summary is put into use at once; nothing ever passes the limit."""
    talk, reported = talk_to(2), 0
    seen: list[tuple[str, int]] = []
    for number in range(60):
        got = recalling.chat(talk)
        assert int(got.headers["x-tidemark-tokens-after"]) <= int(got.headers["x-tidemark-limit"])
        action = got.headers["x-tidemark-action"]
        assert action == "compacted" or tokens(got) >= reported
        reported = tokens(got)
        seen.append((action, reported))
        question = user(FACTS[number % 4][1]) if number % 5 == 0 else user(long(1001 + 2 * number, 90))
        talk += [assistant(long(1000 + 2 * number, 90)), question]
        bench.settle()
    assert {action for action, _ in seen} == {"compacted", "reused"}
    assert [action for action, _ in seen].count("compacted") >= 3
    assert sum(reported > 0 for _, reported in seen) > 30


TRANSLATED = """
model_list:
  - model_name: small
    litellm_params: {{model: anthropic/claude-sonnet-4-5, api_key: k}}
    model_info: {{max_input_tokens: {window}, max_output_tokens: 200}}
compaction:
  defaults: {{strategy: extractive, retention_tokens: 200, min_tokens: 300{more}}}
"""


NOTED = anthropic.message({"type": "text", "text": "Noted."})


def test_a_request_that_litellm_translates_recalls_in_place(bench: Bench, request: pytest.FixtureRequest) -> None:
    """Anthropic's request has the quotation at the beginning of the same question, in this turn and the next."""
    client = bench.client(request.node.nodeid, config=TRANSLATED, window=WINDOW, more=RECALL)
    with respx.mock() as router:
        router.route(host="127.0.0.1").pass_through()
        provider = router.post(anthropic.MESSAGES_URL).respond(json=NOTED)
        for talk in (talk_to(1), [*talk_to(1), assistant("7731-QX."), SMALL_TALK]):
            assert client.chat(talk).status_code == 200
    texts = [[str(one["content"]) for one in json.loads(call.request.content)["messages"]] for call in provider.calls]
    assert [[OPENING in text for text in talk].count(True) for talk in texts] == [1, 1]
    assert FACTS[0][0] in texts[0][-1].partition(CLOSING)[0]
    assert texts[1][: len(texts[0])] == texts[0]
