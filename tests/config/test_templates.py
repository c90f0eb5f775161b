"""A person's own summary template: what a file may hold, what is told of one that is none, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tidemark.config import load
from tidemark.config.templates import MAX_BYTES
from tidemark.core.conversation.summary import Template
from tidemark.core.errors import ConfigError

Write = Callable[[str], Path]
OWN = """\
# Support calls

You summarize support calls.
Keep every ticket number.

## Customer
who they are,
what they bought

## Open points ##

### of the call
what is not settled
"""


def template(path: Path, model: str = "m") -> Template | str:
    """The template that a file's configuration comes to."""
    return load(path, {"HOME": "/nowhere"}).policy_for(model).template


def test_a_file_is_read_relative_to_the_configuration(write: Write, tmp_path: Path) -> None:
    """Opening, then sections, each with what belongs there; a title is for people."""
    (tmp_path / "support.md").write_text(OWN, encoding="utf-8")
    found = template(write("compaction: {defaults: {template: support.md}}"))
    assert isinstance(found, Template)
    assert found.name.startswith("support.md@")
    assert found.opening == "You summarize support calls.\nKeep every ticket number."
    assert found.sections == (
        ("Customer", "who they are, what they bought"),
        ("Open points", "### of the call what is not settled"),
    )


def test_every_place_for_a_template_takes_a_file(write: Write, tmp_path: Path) -> None:
    """By glob and by entry too; a name of ours next to it."""
    (tmp_path / "own").write_text("## Points", encoding="utf-8")
    path = write(
        """
        model_list:
          - {model_name: a, litellm_params: {model: openai/a}, compaction: {template: ./own}}
          - {model_name: b-1, litellm_params: {model: openai/b}}
          - {model_name: c, litellm_params: {model: openai/c}}
        compaction:
          defaults: {template: concise}
          models: {"b-*": {template: ./own}}
        """
    )
    first, second = template(path, "a"), template(path, "b-1")
    assert isinstance(first, Template)
    assert first == second
    assert first.sections == (("Points", ""),)
    assert first.opening == "You summarize conversations."
    assert template(path, "c") == "concise"


def test_another_content_is_another_template(write: Write, tmp_path: Path) -> None:
    """So that its summaries are others; the same content is the same one."""
    own = tmp_path / "own.md"
    path = write("compaction: {defaults: {template: ./own.md}}")
    names = set()
    for text in ("## A", "## B", "## A"):
        own.write_text(text, encoding="utf-8")
        found = template(path)
        assert isinstance(found, Template)
        names.add(found.name)
    assert len(names) == 2


@pytest.mark.parametrize(
    ("content", "line", "told"),
    [
        (b"", 1, "there is no section"),
        (b"Summarize well.\n", 1, "there is no section"),
        (b"Well.\n## A\nx\n##\ny\n", 4, "this heading has no name"),
        (b"## A\nx\r\n\r\n## A\r\n", 4, 'two sections "A"'),
        (b"## A\n\xff\n", 2, "not UTF-8"),
        (b"## A\n" + b"x" * MAX_BYTES, 1, "longer than 16,000 bytes"),
        (None, 1, "cannot be read: No such file"),
    ],
)
def test_what_is_no_template_is_told_with_file_and_line(
    write: Write, tmp_path: Path, content: bytes | None, line: int, told: str
) -> None:
    """Both files, and the line in each."""
    own = tmp_path / "own.md"
    if content is not None:
        own.write_bytes(content)
    path = write("compaction:\n  defaults:\n    template: ./own.md\n")
    with pytest.raises(ConfigError) as raised:
        load(path, {"HOME": "/nowhere"})
    (message,) = str(raised.value).splitlines()
    assert message.startswith(f"{path}:3: compaction.defaults.template: {own}:{line}: ")
    assert told in message


def test_a_model_may_have_another_template_than_ones_own(write: Write, tmp_path: Path) -> None:
    """A shipped one, or a second file."""
    for name in ("one", "two"):
        (tmp_path / f"{name}.md").write_text(f"## {name}", encoding="utf-8")
    path = write(
        "compaction: {defaults: {template: ./one.md}, models: {a: {template: general}, b: {template: ./two.md}}}"
    )
    assert template(path, "a") == "general"
    assert isinstance(found := template(path, "b"), Template)
    assert found.name.startswith("two.md@")


def test_a_name_that_nobody_knows_is_told_with_all_there_are(write: Write) -> None:
    """And that a file would do."""
    with pytest.raises(ConfigError, match=r'"poem"; it takes one of general, .*, or the path of a file'):
        load(write("compaction: {defaults: {template: poem}}"), {"HOME": "/nowhere"})
