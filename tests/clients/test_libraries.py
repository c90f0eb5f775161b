"""Real client libraries of today work through Tidemark, in whole answers, streams, tools and long talks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import SAYS, SUMMARY, TOLD, Site, skip_unless_installed
from tests.clients.programs import LIBRARIES, Library, key_name

pytestmark = [pytest.mark.clients, pytest.mark.timeout(240)]
Reports = dict[str, dict[str, Any]]


@pytest.fixture(scope="module", params=LIBRARIES, ids=lambda library: f"{library.name}-{library.dialect}")
def library(request: pytest.FixtureRequest) -> Library:
    """One client in one dialect."""
    library: Library = request.param
    skip_unless_installed(library.missing)
    return library


@pytest.fixture(scope="module")
def reports(library: Library, site: Site, tmp_path_factory: pytest.TempPathFactory) -> Reports:
    """What the client's driver reports of its scenarios."""
    folder: Path = tmp_path_factory.mktemp("client")
    return library.run(site.url, folder)


def key(library: Library, scenario: str) -> str:
    """The client's key in a scenario."""
    return f"sk-{scenario}-{key_name(library.name, library.dialect)}"


def needs(library: Library, scenario: str) -> None:
    """Leave a scenario out that a client has not."""
    if scenario not in library.scenarios:
        pytest.skip(f"{library.name} is not asked for {scenario} in {library.dialect}")


def test_a_client_gets_a_whole_answer(library: Library, reports: Reports) -> None:
    """Its driver reports what the library returned."""
    needs(library, "whole")
    assert reports["whole"]["texts"] == [SAYS.text]


def test_a_client_gets_a_stream_in_its_pieces(library: Library, reports: Reports) -> None:
    """Each word is a piece of its own."""
    needs(library, "stream")
    assert reports["stream"]["texts"] == [SAYS.text]
    assert reports["stream"]["pieces"] >= len(SAYS.words)


def test_a_clients_tool_is_called_and_its_result_is_answered(library: Library, reports: Reports, site: Site) -> None:
    """The library runs it, or its driver does where the library leaves that to the caller."""
    needs(library, "tools")
    assert reports["tools"]["texts"] == [TOLD.text]
    assert any(b"sunny in Paris" in request.body for request in site.received(key(library, "tools")))


def test_a_client_crosses_the_high_water_and_notices_nothing(library: Library, reports: Reports, site: Site) -> None:
    """The upstream gets a summary; the client gets its answers."""
    needs(library, "talk")
    assert reports["talk"]["texts"] == [SAYS.text] * 12
    assert SUMMARY in site.received(key(library, "talk"))[-1].body


def test_a_long_talk_of_a_client_is_one_conversation(library: Library, reports: Reports, site: Site) -> None:
    """Tidemark finds each request in its history."""
    needs(library, "talk")
    assert site.conversations(site.url, key(library, "talk")) == 1
