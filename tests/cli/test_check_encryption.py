"""``tidemark check`` says of the keys of an encrypted store what ``tidemark serve`` would say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from click.testing import Result as Outcome

from tests.support.logs import logging_put_back
from tidemark.cli.main import cli
from tidemark.core.errors import ConfigError

KEY = "ab" * 32
SERVER = "store: {url: 'redis://127.0.0.1:1/0'}\n"


def outcome(folder: Path, text: str, *words: str, **variables: str) -> Outcome:
    """What a command ends with for a configuration."""
    path = folder / "tidemark.yaml"
    path.write_text(text)
    environ = {"TIDEMARK_DATA_DIR": str(folder / "data"), **variables}
    with logging_put_back():  # serve takes the log of its process
        return CliRunner().invoke(cli, [*words, "--config", str(path)], env=environ)


@pytest.mark.parametrize(
    ("text", "variables"),
    [
        (SERVER, {"TIDEMARK_ENCRYPTION_KEY": KEY}),
        (f"{SERVER}encryption: {{keys_url: 'redis://127.0.0.1:1/3'}}\n", {"TIDEMARK_ENCRYPTION_KEY": KEY}),
        (f"{SERVER}encryption: {{keys_url: 'redis://127.0.0.1:2'}}\n", {}),
        ("", {"TIDEMARK_ENCRYPTION_KEY": "hush"}),
    ],
    ids=["no place", "the store's own server", "no key", "a key that is none"],
)
def test_what_serve_refuses_is_a_problem(tmp_path: Path, text: str, variables: dict[str, str]) -> None:
    """In the words of serve, so that a file which was checked starts."""
    served = outcome(tmp_path, text, "serve", **variables)
    assert isinstance(served.exception, ConfigError)
    lines = outcome(tmp_path, text, "check", **variables)
    report = json.loads(outcome(tmp_path, text, "check", "--json", **variables).stdout)
    assert report == {"ok": False, "problems": [served.exception.message]}
    assert lines.exit_code == 1
    assert served.exception.message in lines.output
    assert not (tmp_path / "data").exists()


def test_keys_with_a_place_of_their_own_can_be_used(tmp_path: Path) -> None:
    """No server is asked; a file of keys which others can read is warned of, as by serve."""
    path = tmp_path / "master"
    path.write_text(KEY)
    path.chmod(0o644)
    text = f"{SERVER}encryption: {{keys_url: 'redis://127.0.0.1:2'}}\n"
    checked = outcome(tmp_path, text, "check", "--json", TIDEMARK_ENCRYPTION_KEY_FILE=str(path))
    assert (checked.exit_code, json.loads(checked.stdout)["ok"]) == (0, True)
    assert "chmod 600" in checked.stdout


def test_a_command_for_keys_is_not_run(tmp_path: Path) -> None:
    """Who checks a file of others may not trust it; where keys are kept must be stated all the same."""
    vault = f"encryption: {{key_command: ['touch', '{tmp_path / 'ran'}']}}\n"
    assert outcome(tmp_path, vault, "check").exit_code == 0
    refused = outcome(tmp_path, SERVER + vault, "check")
    assert (refused.exit_code, "encryption.keys_url" in refused.output) == (1, True)
    assert not (tmp_path / "ran").exists()
