"""Reads an operator's own summary template, which is a Markdown file.

``reader.py`` calls it and reports problems with their lines. A usable file becomes a ``Template`` of the core, whose
name contains a digest of the file, because another content makes other summaries.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from tidemark.core.conversation.summary import Template
from tidemark.core.frozen import frozen

MAX_BYTES = 16_000
"""The longest template: about 4,000 tokens, a quarter of the window that summarizers are assumed to have."""
_HEADING = re.compile(r"##[ \t]+(\S.*?)[ \t]*#*")
_DEFAULT_OPENING = "You summarize conversations."
_DIGEST_BYTES = 6


@frozen
class TemplateFile:
    """The path that a key states in place of a shipped template's name."""

    path: Path


class TemplateProblem(Exception):
    """The file is no template; the message says why."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


def load_template(path: Path) -> Template:
    """Load the template in a file.

    :raises TemplateProblem: the file cannot be read, or is no template
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        reason = getattr(error, "strerror", None) or error
        raise TemplateProblem(1, f"the file cannot be read: {reason}") from error
    if len(content) > MAX_BYTES:
        raise TemplateProblem(1, f"the file is longer than {MAX_BYTES:,} bytes, too much beside a conversation")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise TemplateProblem(line, "the file is not UTF-8 text; save it as UTF-8") from error
    opening, sections = _parsed(text)
    digest = hashlib.blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()
    return Template(f"{path.name}@{digest}", opening, sections)


def _parsed(text: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Split a template into its opening and its sections; a title (``# ...``) is dropped."""
    gathered_lines: list[tuple[str, list[str]]] = []
    opening: list[str] = []
    for number, raw_line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        line = raw_line.rstrip()
        if line == "##":
            raise TemplateProblem(number, 'this heading has no name; write "## NAME"')
        heading = _HEADING.fullmatch(line)
        if heading and heading[1] in dict(gathered_lines):
            raise TemplateProblem(number, f'there are two sections "{heading[1]}"; give each a name of its own')
        if heading:
            gathered_lines.append((heading[1], []))
        elif gathered_lines:
            gathered_lines[-1][1].append(line)
        elif any(opening) or not line.startswith("# "):
            opening.append(line)
    if not gathered_lines:
        raise TemplateProblem(
            1, 'there is no section; start each with a line "## NAME", and describe below it what belongs there'
        )
    sections = tuple((name, " ".join(" ".join(lines).split())) for name, lines in gathered_lines)
    return "\n".join(opening).strip() or _DEFAULT_OPENING, sections
