"""``transport.lane``: what ``tidemark check`` says of each model, and of a word that is none."""

from __future__ import annotations

from pathlib import Path

from tidemark.config.report import check_report

MODELS = """
transport: {lane: litellm}
upstream: "http://127.0.0.1:9/v1"
model_list:
  - {model_name: kept, lane: wire, litellm_params: {model: openai/kept}}
  - {model_name: other, litellm_params: {model: openai/other}}
"""


def test_each_model_is_shown_with_the_lane_that_its_requests_take(tmp_path: Path) -> None:
    """An entry's own lane comes before the switch."""
    path = tmp_path / "tidemark.yaml"
    path.write_text(MODELS)
    lines, usable = check_report(path, {"TIDEMARK_DATA_DIR": str(tmp_path)})
    assert usable
    shown = [line.partition(" -> ")[0] + ": " + line.rpartition(", lane ")[2] for line in lines if ", lane " in line]
    assert shown == ["kept: wire", "other: litellm", "any other model: litellm"]


def test_an_unknown_lane_is_told_with_the_words_that_there_are(tmp_path: Path) -> None:
    """A slip of the pen is the common cause."""
    path = tmp_path / "tidemark.yaml"
    path.write_text("transport: {lane: litelm}\n")
    lines, usable = check_report(path, {"TIDEMARK_DATA_DIR": str(tmp_path)})
    assert not usable
    assert lines[0].endswith('transport.lane is "litelm"; it takes one of auto, litellm')
