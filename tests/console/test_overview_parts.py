"""The overview of one model or one tenant: it has the figures of nobody else, and its links lead on with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.console.conftest import TOKEN, Console, Visitor, consoled
from tests.console.test_money_pages import plain
from tests.features.bill.test_gain import PRICED
from tests.features.tenants.test_erasure import owner_for
from tests.request.conftest import WINDOW
from tests.request.talk import history, user
from tests.support.scripted import error

OWN, FOREIGN = "key-of-ours", "key-of-theirs"
SECOND = """  - model_name: a <large> model
    litellm_params: {{model: openai/scripted, api_base: "{base}"}}
    model_info: {{max_input_tokens: {window}, max_output_tokens: 200}}
compaction:"""
CHOICE = re.compile(r'<option value="([^"]*)"( selected)?>([^<]*)</option>')


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """Two tenants and two models."""
    config = WINDOW.replace("compaction:", SECOND)
    with consoled(tmp_path_factory.mktemp("parts"), config=config, auditor="a" * 40) as made:
        for number in range(3):
            made.client(OWN).chat([user(f"Hello {number}.")])
        made.client(FOREIGN).chat(history(12), model="a <large> model", summarize="force")
        made.settle()
        yield made


def requests_of(visitor: Visitor, query: str) -> str:
    """The number in the tile of requests."""
    page = visitor.get(f"/console?{query}")
    assert page.status_code == 200, page.text
    found = re.search(r"<dt>Requests</dt><dd>([\d,]+)</dd>", page.text)
    return found[1] if found else ""


@pytest.mark.parametrize("window", ["hour", "day", "week"])
def test_the_figures_are_those_of_the_chosen_one(console: Console, window: str) -> None:
    """In the tiles, in every window; of a name that nobody has they are none."""
    visitor = console.visitor()
    wanted = {
        "": "4",
        "model:small": "3",
        "model:a+%3Clarge%3E+model": "1",
        f"tenant:{owner_for(OWN)}": "3",
        f"tenant:{owner_for(FOREIGN)}": "1",
        "tenant:nobody": "0",
    }
    assert {of: requests_of(visitor, f"window={window}&of={of}") for of in wanted} == wanted


def test_the_choice_has_everything_with_figures_and_keeps_the_window(console: Console) -> None:
    """Names that clients made up are escaped; the chosen one is selected, and the tabs keep it."""
    page = console.visitor().get("/console?window=day&of=model:a+%3Clarge%3E+model").text
    owners = sorted(map(owner_for, (OWN, FOREIGN)))
    assert CHOICE.findall(page) == [
        ("", "", "All"),
        ("model:a &lt;large&gt; model", " selected", "a &lt;large&gt; model"),
        ("model:small", "", "small"),
        *((f"tenant:{owner}", "", owner[:8]) for owner in owners),
    ]
    assert '<input type="hidden" name="window" value="day">' in page
    assert 'href="/console?window=week&amp;of=model%3Aa+%3Clarge%3E+model"' in page
    assert 'href="/console/requests?model=a+%3Clarge%3E+model"' in page
    assert "<large>" not in page


def test_the_last_compactions_are_those_of_the_chosen_one(console: Console) -> None:
    """A tenant's page has no money: the bill is kept by model only."""
    visitor = console.visitor()
    for of, count, money in (
        ("model:small", 0, True),
        ("model:a+%3Clarge%3E+model", 1, True),
        (f"tenant:{owner_for(OWN)}", 0, False),
        (f"tenant:{owner_for(FOREIGN)}", 1, False),
    ):
        page = visitor.get(f"/console?of={of}").text
        listed = page.count('<a href="/console/requests/')
        assert (listed, "Saved in 7 days" in page, "Money by day" in page) == (count, money, money), of


@pytest.mark.parametrize("of", ["small", "model:", "owner:x", ":", "model"])
def test_a_part_of_nonsense_is_refused(console: Console, of: str) -> None:
    """With what it may be."""
    answer = console.visitor().get(f"/console?of={of}")
    assert answer.status_code == 400
    assert "model: or tenant:" in plain(answer.text)


def test_an_auditor_chooses_as_the_operator_does(console: Console) -> None:
    """Figures are what it is for."""
    visitor = console.visitor(signed_in=False)
    visitor.http.post("/console/login", data={"token": "a" * 40})
    assert requests_of(visitor, f"of=tenant:{owner_for(FOREIGN)}") == "1"


def test_a_tenant_sees_its_own_figures_whatever_it_asks_for(console: Console) -> None:
    """And no name of another model or tenant."""
    visitor = console.visitor(signed_in=False)
    assert visitor.http.post("/console/login", data={"token": OWN}).status_code == 303
    pages = [
        visitor.get(f"/console?window={window}&of={of}").text
        for window in ("hour", "day", "week")
        for of in ("", "model:small", "model:a+%3Clarge%3E+model", f"tenant:{owner_for(FOREIGN)}")
    ]
    for page in pages:
        counts = [int(count) for count in re.findall(r"On request (\d+)", page)]
        assert (len(counts) > 50, sum(counts)) == (True, 0)
        assert "large" not in page
        assert owner_for(FOREIGN)[:8] not in page
    assert '<a href="/console?window=day" aria-current="true">' in pages[4]
    assert sum(int(count) for count in re.findall(r"Requests (\d+), From the provider", pages[0])) == 3
    assert visitor.get("/console?window=year").status_code == 400


def test_all_others_have_no_list_of_compactions(console: Console) -> None:
    """The log tells them apart, and has no such name."""
    console.upstream.script = lambda _: error(401, "No such key.")
    console.client("invented").chat([user("Hello.")], model="invented")
    console.settle()
    page = console.visitor().get("/console?of=tenant:other").text
    assert ("tenant:other", " selected", "All others") in CHOICE.findall(page)
    assert "Last compactions" not in page


def test_the_money_of_a_model_is_its_own(start_console: Callable[..., Console], tmp_path: Path) -> None:
    """From the same bill, by day."""
    console = start_console(config=PRICED, token=TOKEN)
    console.client().chat(history(12), summarize="force")
    console.settle()
    visitor = console.visitor()
    whole = plain(visitor.get("/console").text)
    paid = re.search(r"\$[\d.]+ paid", whole)
    assert paid
    assert paid[0] in plain(visitor.get("/console?of=model:small").text)
    assert paid[0] not in plain(visitor.get("/console?of=model:none").text)
