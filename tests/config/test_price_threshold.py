"""``threshold: price`` and ``mode: shadow`` in a configuration: what commands and pages say of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tidemark.cli.main import cli
from tidemark.config import load
from tidemark.config.stored import check_stored, configured_values, with_stored

TEXT = """
model_list:
  - model_name: claude-haiku-4-5
    litellm_params: {model: anthropic/claude-haiku-4-5, api_key: none}
compaction: {defaults: {threshold: price, price_floor: 50000, mode: shadow}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A configuration whose marks follow the price, in shadow mode."""
    path = tmp_path / "tidemark.yaml"
    path.write_text(TEXT)
    return path


def run(file: Path, *words: str) -> Result:
    """Run a command with the configuration."""
    done = CliRunner().invoke(cli, [*words, "--config", str(file)], env={"TIDEMARK_DATA_DIR": str(file.parent / "d")})
    assert done.exit_code == 0, done.output
    return done


def test_check_says_that_the_marks_follow_the_price(file: Path) -> None:
    """And which ones a model without a price has."""
    lines = run(file, "check", "--offline").output.splitlines()
    assert "  high water by price, 50,000 or more; without a known price as follows" in lines
    assert "  shadow mode: no compaction changes a request, and what it would save is reported" in lines
    described = json.loads(run(file, "check", "--offline", "--json").output)["models"][0]
    assert (described["price_floor"], described["mode"]) == (50_000, "shadow")


def test_the_list_of_models_shows_no_mark_that_does_not_hold(file: Path) -> None:
    """The usual ones apply only to a model without a price."""
    (row,) = [line for line in run(file, "models", "list").output.splitlines() if "haiku" in line]
    assert "by price" in row


def test_a_stored_threshold_replaces_it_and_a_reset_brings_it_back(file: Path) -> None:
    """The settings page shows what applies if it stores nothing."""
    settings = load(file, {})
    assert configured_values(settings)["threshold"] == "price"
    stored = with_stored(settings, {"threshold": 0.8})
    check_stored(settings, {"threshold": 0.8})
    assert (stored.policy_for("claude-haiku-4-5").threshold, stored.policy_for("claude-haiku-4-5").by_price) == (
        0.8,
        False,
    )
    assert settings.policy_for("claude-haiku-4-5").by_price
