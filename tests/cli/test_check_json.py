"""``tidemark check --json`` says the same as its lines."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidemark.cli.main import cli

CONFIG = """
model_list:
  - model_name: small
    litellm_params: {model: openai/small, api_base: "http://127.0.0.1:8080/v1", api_key: sk-hush}
    model_info: {max_input_tokens: 32768, max_output_tokens: 4096}
    compaction: {strategy: extractive}
  - {model_name: small, litellm_params: {model: openai/other}}
  - {model_name: off, litellm_params: {model: openai/off}, compaction: {enabled: false}}
upstream: http://user:hush@127.0.0.1:1/v1
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration with two models and any other."""
    monkeypatch.setenv("TIDEMARK_DATA_DIR", str(tmp_path))
    path = tmp_path / "tidemark.yaml"
    path.write_text(CONFIG.replace("model_name: off", "model_name: 'off'"))
    return path


def test_every_model_has_its_marks_in_tokens(file: Path) -> None:
    """The numbers are those of the lines; no credential is printed."""
    words = ["check", "--config", str(file)]
    lines, report = CliRunner().invoke(cli, words).stdout, CliRunner().invoke(cli, [*words, "--json"])
    assert report.exit_code == 0
    assert "hush" not in report.stdout
    checked = json.loads(report.stdout)
    assert checked["ok"] is True
    assert [model["model"] for model in checked["models"]] == ["small", "off", "any other model"]
    small, off, _ = checked["models"]
    assert (small["upstream"], small["lane"], small["strategy"]) == ("openai/small", "auto", "extractive")
    assert small["summarizer"] is None
    assert off["enabled"] is False
    for name in ("window", "limit", "high_water", "prepare", "low_water", "retention"):
        assert f"{name.replace('_', ' ')} {small[name]:,}" in lines
    assert all(warning in lines for warning in checked["warnings"])
    assert checked["warnings"]


def test_an_address_that_cannot_be_reached_is_a_warning(file: Path) -> None:
    """With its URL, the cause and the mend, and without its password; the configuration can be used all the same."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        base = f"127.0.0.1:{closed.getsockname()[1]}/v1"
        file.write_text(f"upstream: http://user:hush@{base}\n")
        words = ["check", "--config", str(file)]
        done = CliRunner().invoke(cli, words)
        report = json.loads(CliRunner().invoke(cli, [*words, "--json"]).stdout)
        quiet = CliRunner().invoke(cli, [*words, "--offline"])
    told = f"nothing listens at http://{base}; start the server there"
    assert done.exit_code == 0
    assert f"warning: The upstream of 'any model' cannot be reached: {told}" in done.stdout
    assert "hush" not in done.stdout
    assert any(told in warning for warning in report["warnings"])
    assert "nothing listens" not in quiet.stdout


def test_problems_are_listed_and_the_code_is_1(file: Path) -> None:
    """Each with file, line and mend."""
    file.write_text("server: {port: x}\nthresold: 1\n")
    done = CliRunner().invoke(cli, ["check", "--config", str(file), "--json"])
    assert done.exit_code == 1
    report = json.loads(done.stdout)
    assert report["ok"] is False
    assert [problem.partition(": ")[0] for problem in report["problems"]] == [f"{file}:1", f"{file}:2"]
