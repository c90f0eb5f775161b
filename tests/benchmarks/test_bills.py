"""The bill of a session through a whole Tidemark, beside what Tidemark says of it itself."""

from __future__ import annotations

import pytest

from benchmarks.bill import Bill, through_tidemark, without_proxy
from benchmarks.billed_sessions import own_sessions, session_of

SESSION = session_of("usual", own_sessions()["usual"][:50])
POLICY = "{strategy: extractive, threshold: price, price_floor: 16000"


@pytest.fixture(scope="module")
def compacted() -> Bill:
    """The bill of a session that is compacted as soon as it pays, with a floor for a short one."""
    return through_tidemark(SESSION, POLICY + "}")


@pytest.fixture(scope="module")
def shadowed() -> Bill:
    """The bill of the same session in shadow mode."""
    return through_tidemark(SESSION, POLICY + ", mode: shadow}")


def test_compacting_by_price_saves_money_and_tidemark_knows_how_much(compacted: Bill) -> None:
    """What it paid to the cent, and what it would have paid within 5 %."""
    whole = without_proxy(SESSION)
    assert compacted.compactions >= 2
    assert compacted.usd < 0.9 * whole.usd
    assert compacted.gain["paid_usd"] == pytest.approx(compacted.usd, abs=1e-6)
    assert compacted.gain["uncompacted_usd"] == pytest.approx(whole.usd, rel=0.05)
    assert compacted.gain["saved_usd"] > 0


def test_shadow_mode_forecasts_the_bill_within_5_percent(compacted: Bill, shadowed: Bill) -> None:
    """Of the same turns, which it bills as they came."""
    assert shadowed.usd == pytest.approx(without_proxy(SESSION).usd)
    assert shadowed.gain["saved_usd"] == 0
    assert shadowed.gain["shadow_requests"] == len(SESSION.ends)
    assert shadowed.gain["shadow_usd"] == pytest.approx(shadowed.usd, abs=1e-6)
    assert shadowed.gain["forecast_usd"] == pytest.approx(compacted.usd, rel=0.05)
