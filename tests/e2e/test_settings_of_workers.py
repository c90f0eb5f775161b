"""A setting that is saved on the console's page applies in every process of one store, without a restart."""

from __future__ import annotations

import re

import httpx
import pytest

from tests.e2e.test_command import WAIT_SECONDS, Machine, Tidemark, machine
from tests.request.talk import history, user
from tests.support.serving import NO_TLS
from tests.support.waiting import wait_until
from tidemark.catalog.overrides import POLL_SECONDS

__all__ = ["machine"]
pytestmark = pytest.mark.e2e

SETTINGS = "/console/settings"


def save(tidemark: Tidemark, **fields: str) -> None:
    """Send the form as a browser does."""
    with httpx.Client(base_url=tidemark.url, verify=NO_TLS, timeout=WAIT_SECONDS) as http:
        page = http.get(SETTINGS).text
        hidden = {name: re.findall(rf'name="{name}" value="(\w+)"', page)[0] for name in ("csrf", "version")}
        answer = http.post(SETTINGS, data={**hidden, "notices": "on", "action": "save", **fields})
        assert answer.status_code == 303, answer.text


def test_a_saved_threshold_decides_over_the_next_request_to_another_process(machine: Machine, store_url: str) -> None:
    """Less than half a second passes between two looks at the store, so it is effective within one."""
    assert POLL_SECONDS < 0.5
    config, shared = str(machine.config()), {"TIDEMARK_STORE_URL": store_url, "TIDEMARK_SECRET": "s" * 40}
    one, other = (
        machine.serve("--config", config, environ={**shared, "TIDEMARK_DATA_DIR": str(machine.folder / name)})
        for name in ("one", "two")
    )
    begun = 0

    def action() -> str:
        """What the other process does with a conversation of its own."""
        nonlocal begun
        begun += 1
        return str(other.chat([user(f"Conversation {begun}."), *history(9)]).headers["x-tidemark-action"])

    assert action() == "none"
    try:
        save(one, threshold="0.5")
        wait_until(lambda: action() == "compacted", WAIT_SECONDS)
        save(one, threshold="")
        wait_until(lambda: action() == "none", WAIT_SECONDS)
    finally:
        httpx.delete(f"{one.url}/tidemark/settings", verify=NO_TLS, timeout=WAIT_SECONDS)


def test_a_saved_threshold_reaches_all_workers_of_one_command(machine: Machine) -> None:
    """Whichever of them is asked."""
    tidemark = machine.serve("--config", str(machine.config()), "--workers", "2")
    wait_until(lambda: sum("Started server process" in line["event"] for line in tidemark.lines) == 2, WAIT_SECONDS)
    save(tidemark, threshold="0.77")

    def shows_it() -> bool:
        return '"threshold":0.77' in tidemark.get("/tidemark/models/openai:scripted").text.replace(" ", "")

    wait_until(lambda: all(shows_it() for _ in range(20)), WAIT_SECONDS)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_each_value_is_shown_with_its_source(machine: Machine, workers: str) -> None:
    """The command line's, even where it is the file's or the default; what ``serve`` made itself is no setting."""
    tidemark = machine.serve("--config", str(machine.config()), "--host", "127.0.0.1", "--workers", workers)
    shown = {row[0]: row for row in rows(tidemark.get(SETTINGS).text)}
    assert shown["server.host"] == ["server.host", "127.0.0.1", "command line"]
    assert shown["server.workers"] == ["server.workers", workers, "command line"]
    assert shown["store.url"] == ["store.url", "embedded", "default"]
    assert "TIDEMARK_SECRET" not in shown


def rows(page: str) -> list[list[str]]:
    """The cells of the table's rows, as text."""
    found = re.findall(r"<tr[^>]*>(.*?)</tr>", page, re.DOTALL)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in found]
    return [[re.sub(r"<[^>]*>", "", cell).strip() for cell in row] for row in cells if row]
