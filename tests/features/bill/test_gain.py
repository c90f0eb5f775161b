"""``GET /tidemark/gain``: what requests cost and what they would have cost uncompacted, by the provider's count."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.request.conftest import SECRET, Bench, Client, benched
from tests.request.talk import history, user
from tests.support.fresh_stores import fresh_store
from tests.support.scripted import says
from tests.support.serving import NO_TLS, Serving
from tidemark.app.application import create_app
from tidemark.config import load

PRICED = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/scripted, api_base: "{base}"}}
    model_info:
      max_input_tokens: {window}
      max_output_tokens: 200
      input_cost_per_token: 0.000001
      output_cost_per_token: 0.000002
  - model_name: unknown
    litellm_params: {{model: openai/scripted, api_base: "{base}"}}
    model_info: {{max_input_tokens: {window}, max_output_tokens: 200}}
compaction:
  defaults: {{strategy: {strategy}, retention_tokens: 200, min_tokens: 300{more}}}
"""
INPUT, OUTPUT = 1e-6, 2e-6


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Bench]:
    """A bench upon a store of the test's own: the bill is everybody's."""
    with fresh_store() as server, benched(server.url, tmp_path) as made:
        yield made


def gain(client: Client, query: str = "") -> dict[str, Any]:
    """GET the bill."""
    answer = client.http.get(f"/tidemark/gain?{query}")
    assert answer.status_code == 200, answer.text
    bill: dict[str, Any] = answer.json()
    return bill


def conversation(client: Client, answer: httpx.Response) -> dict[str, Any]:
    """GET the conversation of an answer."""
    identifier = answer.headers["x-tidemark-conversation"]
    shown = client.http.get(f"/tidemark/conversations/{identifier}", headers=client.headers())
    assert shown.status_code == 200, shown.text
    page: dict[str, Any] = shown.json()
    return page


def counted(answer: httpx.Response) -> tuple[int, int]:
    """Return what the provider counted."""
    usage = answer.json()["usage"]
    return usage["prompt_tokens"], usage["completion_tokens"]


def test_every_request_is_billed_by_the_provider_s_count(own: Bench) -> None:
    """Whole requests save nothing, and a model without a price has tokens and no money."""
    client = own.client("bill", config=PRICED)
    answers = [client.chat([user(f"Hello {number}.")]) for number in range(3)]
    client.chat([user("Hello.")], model="unknown")
    paid = sum(INPUT * prompt + OUTPUT * reply for prompt, reply in map(counted, answers))
    own.settle()
    bill = gain(client)
    rows = {row["model"]: row for row in bill["data"]}
    assert rows["small"]["requests"] == 3
    assert rows["small"]["paid_usd"] == rows["small"]["uncompacted_usd"] == pytest.approx(paid)
    assert rows["small"]["saved_usd"] == 0
    assert rows["unknown"]["input_tokens"] > 0
    assert (rows["unknown"]["paid_usd"], rows["unknown"]["saved_usd"]) == (None, None)
    assert rows["unknown"]["unpriced_requests"] == bill["unpriced_requests"] == 1
    assert bill["requests"] == 4


def test_a_compacted_conversation_shows_what_it_saved(own: Bench) -> None:
    """In all, by day, and on the conversation itself; an extractive summary costs nothing."""
    client = own.client("saving", config=PRICED)
    answer = client.chat(history(12), summarize="force")
    own.settle()
    bill, by_day = gain(client), gain(client, "by=day&since=2d")
    assert bill["saved_usd"] > 0
    assert bill["summaries_usd"] == 0
    assert bill["saved_usd"] == pytest.approx(bill["uncompacted_usd"] - bill["paid_usd"])
    assert [row["requests"] for row in by_day["data"]] == [0, 1]
    assert by_day["data"][1]["day"] == bill["last"]
    assert conversation(client, answer)["bill"]["saved_usd"] == pytest.approx(bill["saved_usd"])


def test_a_compacted_answer_says_what_it_saved(own: Bench) -> None:
    """In a header, never more than the bill; not if nothing was done, without a price, or of a stream."""
    client = own.client("header", config=PRICED)
    answer = client.chat(history(12), summarize="force")
    again = client.chat([*history(12), user("And now?")])
    own.settle()
    amounts = [float(one.headers["x-tidemark-saved"].removesuffix(" USD")) for one in (answer, again)]
    assert sum(amounts) == pytest.approx(gain(client)["saved_usd"], abs=2e-6)
    assert "x-tidemark-saved" not in client.chat([user("Hello.")]).headers
    unpriced = client.chat(history(12), model="unknown", summarize="force")
    assert unpriced.headers["x-tidemark-action"] == "reused"
    assert "x-tidemark-saved" not in unpriced.headers
    body = {"model": "small", "messages": [*history(12), user("A stream?")], "stream": True}
    assert "x-tidemark-saved" not in client.post(body).headers


def test_the_header_says_what_a_summary_cost(own: Bench) -> None:
    """Below 0, as the bill."""
    client = own.client("header of a loss", config=PRICED, strategy="llm")
    own.upstream.script = says("The summary tells of points and of what was said about them.")
    answer = client.chat(history(12), summarize="force")
    own.settle()
    amount = float(answer.headers["x-tidemark-saved"].removesuffix(" USD"))
    assert amount == pytest.approx(gain(client)["saved_usd"], abs=2e-6)
    assert amount < 0


def test_a_model_s_summary_is_billed_to_its_conversation(own: Bench) -> None:
    """The saving is net of it, and below 0 if the summary cost more than it saved."""
    client = own.client("summary", config=PRICED, strategy="llm")
    own.upstream.script = says("The summary tells of points and of what was said about them.")
    answer = client.chat(history(12), summarize="force")
    own.settle()
    bill = gain(client)
    assert bill["summary_tokens"] > 0
    assert bill["summaries_usd"] > 0
    assert bill["saved_usd"] == pytest.approx(bill["uncompacted_usd"] - bill["paid_usd"])
    assert bill["saved_usd"] < 0
    assert conversation(client, answer)["bill"]["summaries_usd"] == pytest.approx(bill["summaries_usd"])


def test_the_summaries_of_a_model_without_a_price_hide_no_other_saving(own: Bench) -> None:
    """It saves no money, so its row alone is unknown."""
    client = own.client("two models", config=PRICED, strategy="llm")
    own.upstream.script = says("The summary tells of points and of what was said about them.")
    client.chat(history(12), summarize="force")
    client.chat(history(13), model="unknown", summarize="force")
    own.settle()
    bill, by_day = gain(client), gain(client, "by=day&since=1d")
    rows = {row["model"]: row for row in bill["data"]}
    assert rows["unknown"]["unknown_summaries"] > 0
    assert (rows["unknown"]["saved_usd"], rows["unknown"]["paid_usd"]) == (None, None)
    assert bill["saved_usd"] == by_day["data"][0]["saved_usd"] == rows["small"]["saved_usd"]


def test_a_request_that_its_provider_does_not_count_makes_no_money(own: Bench) -> None:
    """It is listed as such."""
    client = own.client("uncounted", config=PRICED)
    own.upstream.script = says("Yes.", usage=False)
    client.chat([user("Hello.")])
    own.settle()
    bill = gain(client)
    assert (bill["requests"], bill["uncounted_requests"], bill["paid_usd"]) == (1, 1, None)


def test_a_conversation_that_was_never_near_its_limit_has_no_bill(own: Bench) -> None:
    """Nothing can have been saved on it, and a small request pays nothing for that."""
    client = own.client("small", config=PRICED)
    answer = client.chat([user("Hello.")])
    own.settle()
    gain(client)
    assert conversation(client, answer)["bill"] is None


def test_the_money_is_in_the_metrics(own: Bench) -> None:
    """Requests, summaries, and what they would have cost."""
    client = own.client("metrics", config=PRICED)
    client.chat(history(12), summarize="force")
    own.settle()
    bill, page = gain(client), client.http.get("/metrics").text
    values = dict(line.rsplit(" ", 1) for line in page.splitlines() if line.startswith("tidemark_bill"))
    assert float(values['tidemark_bill_usd_total{model="small",part="requests"}']) == pytest.approx(bill["paid_usd"])
    name = 'tidemark_bill_uncompacted_usd_total{model="small"}'
    assert float(values[name]) == pytest.approx(bill["uncompacted_usd"])


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("since=0d", "since"),
        ("since=401d", "since"),
        ("since=7", "since"),
        ("since=-1d", "since"),
        ("since=\u0667d", "since"),
        ("since=" + "9" * 400 + "d", "since"),
        ("since=1d&since=2d", "since"),
        ("by=tenant", "by"),
        ("by=day&by=model", "by"),
    ],
)
def test_nonsense_is_refused_by_name(client: Client, query: str, param: str) -> None:
    """With what it may be."""
    answer = client.http.get(f"/tidemark/gain?{query}")
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, param)
    assert len(error["message"]) < 200


def test_only_the_operator_reads_it(store_url: str, tmp_path: Path) -> None:
    """As all endpoints of the operator."""
    settings = load(None, {"TIDEMARK_DATA_DIR": str(tmp_path), "TIDEMARK_ADMIN_TOKEN": "t" * 40})
    app = create_app(settings, store_url=store_url, secret=SECRET, warn=lambda _: None)
    with Serving(app) as server, httpx.Client(base_url=server.url, verify=NO_TLS) as http:
        assert http.get("/tidemark/gain").status_code == 401
        assert http.get("/tidemark/gain", headers={"authorization": f"Bearer {'t' * 40}"}).status_code == 200
