"""A person's own summary template: a Markdown file, read when the configuration is.

Part of loading. ``reading.py`` tells what is wrong with line and mend; what is right becomes a ``Template`` of the
core, whose name holds a digest of the file: another content makes other summaries.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from proxy.core.conversation.summary import Template

MAX_BYTES = 16_000
"""About 4,000 tokens, a quarter of the window that summarizers are taken to have."""
_HEADING = re.compile(r"##[ \t]+(\S.*?)[ \t]*#*")
_DEFAULT_OPENING = "You summarize conversations."
_DIGEST_BYTES = 6


@dataclass(frozen=True, slots=True)
class TemplateFile:
    """What a key names in place of a template of ours."""

    path: Path


class TemplateProblem(Exception):
    """Why a file is no template."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


def load_template(path: Path) -> Template:
    """The template in a file.

    :raises TemplateProblem: it cannot be read, or is none
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
    """The text before the first heading, and the sections; a title (``# ...``) is left out."""
    gathered: list[tuple[str, list[str]]] = []
    opening: list[str] = []
    for number, written in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        line = written.rstrip()
        if line == "##":
            raise TemplateProblem(number, 'this heading has no name; write "## NAME"')
        found = _HEADING.fullmatch(line)
        if found and found[1] in dict(gathered):
            raise TemplateProblem(number, f'there are two sections "{found[1]}"; give each a name of its own')
        if found:
            gathered.append((found[1], []))
        elif gathered:
            gathered[-1][1].append(line)
        elif any(opening) or not line.startswith("# "):
            opening.append(line)
    if not gathered:
        raise TemplateProblem(
            1, 'there is no section; start each with a line "## NAME", and say below what belongs there'
        )
    sections = tuple((name, " ".join(" ".join(lines).split())) for name, lines in gathered)
    return "\n".join(opening).strip() or _DEFAULT_OPENING, sections
