"""``docs/troubleshooting.md``: symptoms in users' words; what it says to do is there to be done."""

from __future__ import annotations

import re

import click
import pytest

from tests.docs.pages import names_in, quoted, text_of
from tests.docs.test_names import commands
from tidemark.cli.main import cli
from tidemark.config import key_notes
from tidemark.config.environment import VARIABLES

PAGE = "docs/troubleshooting.md"
SYMPTOMS = dict(re.findall(r"^### (.+)\n\n((?:.|\n)*?)(?=^#|\Z)", text_of(PAGE), re.MULTILINE))
MOST_WORDS = 60
"""Of one symptom: its cause, and what ends it."""
KEYS = {note.name.removeprefix("compaction.defaults.") for note in key_notes()} | names_in(
    "docs/configuration.md", "key of an entry"
)
COMMANDS = dict(commands(cli))
NOT_KEYS = {
    "api_base",
    "cache_break",
    "import_limit_exceeded",
    "include_usage",
    "input_cost_per_token",
    "model_list",
    "rate_limit_exceeded",
}
"""Names of other things: members of LiteLLM's syntax, codes, fields of the log."""
CODE = re.compile(r"^\d{3} ([a-z_]+)")


def test_there_are_many_symptoms_and_each_is_short() -> None:
    """Whoever has one reads one."""
    assert len(SYMPTOMS) >= 20
    assert [name for name, text in SYMPTOMS.items() if len(text.split()) > MOST_WORDS] == []


@pytest.mark.parametrize("symptom", SYMPTOMS)
def test_each_symptom_says_what_to_do(symptom: str) -> None:
    """After its cause, where there is more to say than that."""
    assert re.search(r"^(?:|.*[.:?] )\*\*Do:\*\* \S", " ".join(SYMPTOMS[symptom].split()))


def test_every_code_in_a_heading_is_one_of_ours() -> None:
    """As docs/wire.md lists them; a heading may also quote an upstream."""
    codes = {found[1] for name in SYMPTOMS if (found := CODE.match(name)) and "_" in found[1]}
    assert len(codes) > 5
    assert codes <= names_in("docs/wire.md", "code")


@pytest.mark.parametrize("name", sorted({name for name in quoted(text_of(PAGE)) if re.match(r"tidemark [a-z]", name)}))
def test_every_command_exists_with_its_options(name: str) -> None:
    """A line end within a command is a blank."""
    words = name.split()[1:]
    command = COMMANDS.get(" ".join(words[:2])) or COMMANDS[words[0]]
    options = {name for option in command.params if isinstance(option, click.Option) for name in option.opts}
    assert {word for word in words if word.startswith("--")} <= options


def test_every_setting_exists() -> None:
    """Whole, or as it stands in ``compaction.defaults`` or an entry of ``model_list``."""
    names = {re.sub(r"[:{].*", "", name, flags=re.DOTALL).strip() for name in quoted(text_of(PAGE))}
    settings = {name for name in names if re.fullmatch(r"[a-z]+(?:_[a-z]+)*(?:\.[a-z_]+)+|[a-z]+_[a-z_]+", name)}
    known = KEYS | {name.partition(".")[0] for name in KEYS} | NOT_KEYS
    assert {name for name in settings if "/" not in name} <= known
    assert {name for name in names if re.fullmatch(r"TIDEMARK_[A-Z_]+", name)} <= set(VARIABLES)
