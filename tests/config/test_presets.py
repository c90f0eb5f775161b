"""Presets: files of ``config/presets/`` that are configurations, and are named by others."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from tidemark.config import CompactionSettings, check_report, load, shipped_file
from tidemark.config.sections import Preset, TokenizerSettings
from tidemark.core.errors import ConfigError

HOME = {"HOME": "/home/someone"}
ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "config" / "presets"
PRESETS: tuple[Preset, ...] = get_args(Preset)
Write = Callable[[str], Path]


def test_every_file_is_a_preset_and_every_preset_a_file() -> None:
    """Both ways; an installed wheel has them, too."""
    assert {path.stem for path in FOLDER.iterdir()} == set(PRESETS)
    assert all(shipped_file(f"presets/{name}.yaml").is_file() for name in PRESETS)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_a_configuration_and_a_word_in_another(write: Write, name: str) -> None:
    """Named, it says what its file says; neither warns, and a report tells its name."""
    path = write(f"preset: {name}")
    named, used = load(path, HOME), load(FOLDER / f"{name}.yaml", HOME)
    assert replace(named, data_dir=used.data_dir) == used
    assert named.warnings == used.warnings == ()
    assert named.preset == name
    assert used.compaction.defaults != CompactionSettings()
    lines, ok = check_report(path, HOME)
    assert ok
    assert f"preset {name}, replaced by the keys that the file states" in lines


@pytest.mark.parametrize("name", PRESETS)
def test_the_documentation_says_what_a_preset_says(name: str) -> None:
    """Each key of the documented row is in the file with that value, and each line of the file's is in the row."""
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    row = re.search(rf"^\| `{name}` \|.*$", text, re.MULTILINE)
    assert row
    stated = re.findall(r"^ +([a-z_]+: [^ #\n]+)", (FOLDER / f"{name}.yaml").read_text(encoding="utf-8"), re.MULTILINE)
    documented = set(re.findall(r"`([a-z_]+: [^`N]+)`", row[0]))
    assert documented <= set(stated)
    in_words = {"retention_tokens", "retention_ratio", "timeout_seconds", "model", "on_failure", "enabled"}
    plain = {"template: general", "calibrate: false"}
    missing = set(stated) - documented - plain
    assert {line.partition(":")[0] for line in missing} <= in_words


def test_a_files_own_keys_go_before_the_presets(write: Write) -> None:
    """Nested ones and those of models, too; what neither says is the default."""
    settings = load(
        write("""
            preset: agent
            compaction:
              defaults: {keep_last_messages: 20, summarizer: {model: openai/quick}}
              models: {"wide-*": {threshold: 0.9}}
            """),
        HOME,
    )
    found = settings.compaction_for("wide-one")
    assert (found.threshold, found.keep_last_messages, found.max_summary_tokens) == (0.9, 20, 2000)
    assert (found.summarizer.model, found.summarizer.timeout_seconds) == ("openai/quick", 10)
    assert found.target == CompactionSettings().target
    assert settings.tokenizer == TokenizerSettings()
    chosen = load(write("preset: library\ntokenizer: {on_failure: error}"), HOME)
    assert chosen.tokenizer.on_failure == "error"


def test_models_yaml_gives_way_to_a_preset_where_that_changes_a_default(write: Write) -> None:
    """Its thresholds stand in for Tidemark's own defaults only."""
    assert load(write("preset: agent"), HOME).compaction_for("claude-sonnet-4-5").threshold == 0.8
    assert load(write("preset: chat-app"), HOME).compaction_for("claude-sonnet-4-5").threshold == 0.85


def test_an_unknown_preset_is_refused_with_those_there_are(write: Write) -> None:
    """And what is wrong beside it is told at once, as ever."""
    with pytest.raises(ConfigError) as caught:
        load(write("preset: agnt\nserver: {port: x}"), HOME)
    first, second = caught.value.message.splitlines()
    assert first.endswith('1: preset is "agnt"; it takes null or one of library, agent, chat-app, rule-based')
    assert "server.port" in second


def test_a_mark_that_contradicts_the_presets_is_told(write: Write) -> None:
    """Marks are checked as they are used: the file's over the preset's."""
    with pytest.raises(ConfigError, match=r"tidemark.yaml:2: .*target is 0.85, not below the threshold 0.8"):
        load(write("preset: agent\ncompaction: {defaults: {target: 0.85}}"), HOME)


def test_a_preset_that_nothing_is_left_of_is_warned_of(write: Write) -> None:
    """As when it is named in a copy of ``tidemark.yaml``, which states every key."""
    text = (ROOT / "config" / "tidemark.yaml").read_text(encoding="utf-8")
    settings = load(write(text.replace("preset: null", "preset: agent")), HOME)
    (warning,) = settings.warnings
    assert "preset agent has no effect" in warning
