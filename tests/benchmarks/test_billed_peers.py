"""Rows of other proxies in the bill; the bare relay stands for one, and nothing is fetched."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.bill import bills_of_peers, peers_of, without_proxy
from benchmarks.billed_peers import PEERS, BilledPeer, PeerUnavailable, running_peer
from benchmarks.billed_sessions import Session, session_of_trace
from benchmarks.speed.systems import ROOT
from benchmarks.traces.sessions import trace_of

RELAY = BilledPeer(
    "relay",
    "",
    lambda _, place: [sys.executable, "-m", "benchmarks.speed.relay", str(place.port), place.upstream],
    lambda *_: {"PYTHONPATH": f"{ROOT}:{ROOT / 'proxy'}"},
)


@pytest.fixture
def session() -> Session:
    """A short one."""
    return session_of_trace(trace_of("queue-leak", 12))


def test_a_proxy_that_changes_nothing_costs_what_none_costs(session: Session) -> None:
    """It is a process of its own, which the row starts and ends."""
    [(peer, bills)] = bills_of_peers([RELAY], [session, session])
    assert peer is RELAY
    assert not isinstance(bills, str)
    whole = without_proxy(session)
    assert [bill.usd for bill in bills] == pytest.approx([whole.usd, whole.usd])
    assert [bill.compactions for bill in bills] == [0, 0]
    assert all(bill.share("there") == 1 for bill in bills)


def test_a_peer_that_cannot_be_installed_says_so_and_the_next_row_is_measured(tmp_path: Path, session: Session) -> None:
    """In words, with what the installer printed."""
    missing = BilledPeer("missing", str(tmp_path / "no-such-package"), lambda *_: [])
    (_, words), (_, bills) = bills_of_peers([missing, RELAY], [session])
    assert isinstance(words, str)
    assert words.startswith("left out, it could not be installed:")
    assert "no-such-package" in words
    assert not isinstance(bills, str)


def test_a_peer_that_ends_at_its_start_says_so_with_its_last_words(tmp_path: Path) -> None:
    """Nobody waits for it."""
    broken = BilledPeer("broken", "", lambda *_: [sys.executable, "-c", "raise SystemExit('no licence')"])
    with (
        pytest.raises(PeerUnavailable, match="it ended at its start: no licence"),
        running_peer(broken, tmp_path, "http://127.0.0.1:9", tmp_path / "data"),
    ):
        pass


def test_a_peer_that_refuses_a_request_says_so(session: Session) -> None:
    """Its upstream is not asked then."""
    server = "import http.server, sys; http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), "
    server += "http.server.BaseHTTPRequestHandler).serve_forever()"
    refusing = BilledPeer("refusing", "", lambda _, place: [sys.executable, "-c", server, str(place.port)])
    [(_, words)] = bills_of_peers([refusing], [session])
    assert isinstance(words, str)
    assert words.startswith("left out, it failed:")
    assert "501" in words


def test_without_the_option_no_peer_is_installed() -> None:
    """If it names none, all are."""
    assert peers_of(None) == []
    assert peers_of([]) == list(PEERS.values())
    assert [peer.name for peer in peers_of(["cliff-40k"])] == ["cliff-40k"]


@pytest.mark.parametrize("peer", PEERS.values(), ids=PEERS)
def test_every_peer_is_pinned_and_its_title_has_the_version(peer: BilledPeer) -> None:
    """Figures without a version say nothing."""
    name, version = peer.requirement.split("==")
    assert peer.title == f"{peer.name} ({name.partition('[')[0]} {version})"
