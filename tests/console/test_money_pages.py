"""Money in the console: what was paid and saved, on the overview and on a conversation's page."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date

from tests.console.conftest import Console
from tests.features.bill.test_gain import PRICED, gain
from tests.request.talk import history
from tests.support.scripted import says
from tidemark.console.overview import money_plot
from tidemark.core.bill import BillFigures
from tidemark.features.bill.reader import Gain

SAVED = BillFigures(requests=2, requests_nano=1_000_000, uncompacted_nano=5_000_000)
UNKNOWN = BillFigures(requests=2, unpriced=2, tokens_saved=1234)


def plain(page: str) -> str:
    """Return the words of a page."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))


def test_the_plot_has_both_bills_of_each_day() -> None:
    """A day of which nothing is known has no point."""
    days = {"2026-11-25": SAVED, "2026-11-26": UNKNOWN, "2026-11-27": SAVED}
    plot = money_plot(Gain(date(2026, 11, 25), date(2026, 11, 27), SAVED, days))
    assert plot.starts == [1_795_564_800, 1_795_651_200, 1_795_737_600]
    assert [list(line.values) for line in plot.series] == [[0.005, None, 0.005], [0.001, None, 0.001]]


def test_the_pages_show_what_was_saved(start_console: Callable[..., Console]) -> None:
    """The overview in tiles and a plot, the conversation in a line; the same figures as the API's."""
    console = start_console(config=PRICED, token="")
    client, visitor = console.client(), console.visitor()
    answer = client.chat(history(12), summarize="force")
    console.settle()
    saved, paid = gain(client)["saved_usd"], gain(client)["paid_usd"]
    overview = visitor.get("/console").text
    assert f"Saved in 7 days ${saved:.4f}" in plain(overview)
    assert f"${paid:.4f} paid" in plain(overview)
    assert "Money by day" in overview
    assert 'class="loss"' not in overview
    page = visitor.get(f"/console/conversations/{answer.headers['x-tidemark-conversation']}").text
    assert f"${paid:.4f} paid" in page
    assert f"${saved:.4f} saved" in page


def test_where_the_proxy_cost_more_the_pages_say_so_in_red(start_console: Callable[..., Console]) -> None:
    """In words too, since not everybody sees the colour."""
    console = start_console(config=PRICED, token="", strategy="llm")
    client, visitor = console.client(), console.visitor()
    console.upstream.script = says("The summary tells of points and of what was said about them.")
    answer = client.chat(history(12), summarize="force")
    console.settle()
    lost = -gain(client)["saved_usd"]
    overview = visitor.get("/console").text
    assert f'<dd class="loss">\N{MINUS SIGN}${lost:.4f}</dd><dd>it cost more than it saved</dd>' in overview
    page = visitor.get(f"/console/conversations/{answer.headers['x-tidemark-conversation']}").text
    assert f'<span class="loss">${lost:.4f} more</span>' in page


def test_without_a_price_the_pages_have_tokens_and_no_money(console: Console) -> None:
    """A server of one's own."""
    client, visitor = console.client(), console.visitor()
    answer = client.chat(history(12), summarize="force")
    console.settle()
    assert "Saved in 7 days \N{EN DASH} no known price" in plain(visitor.get("/console").text)
    page = visitor.get(f"/console/conversations/{answer.headers['x-tidemark-conversation']}").text
    assert re.search(r"no known price, [1-9][\d,]* tokens saved", page)
