"""Writes the pages of the documentation site: those of ``docs/``, those from elsewhere, and what programs read.

``make site`` runs it, and has MkDocs make HTML of the result. Any other maker of sites that reads Markdown could.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from deploy.site import clients

ROOT = Path(__file__).parents[2]
SETTINGS = Path(__file__).with_name("mkdocs.yml")
ICON = ROOT / "proxy" / "tidemark" / "console" / "static" / "icon.svg"
MOVED = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "reporting.md",
    "CHANGELOG.md": "changelog.md",
    "deploy/release/README.md": "releasing.md",
}
"""Pages outside ``docs/``, with their names on the site. Their links are read as if all stood at the top."""
COPIED = re.compile(r"LICENSE$|(?:config|deploy)/[\w./-]+\.yaml$")
"""Files of the repository that pages link to: the site has a copy."""

_LINK = re.compile(r"(?<=\]\()(?!\w+:)([^)\s#]+)")
_FENCE = re.compile(r"^( *)```.*?^ *```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"^ {2,3}(?=\S)", re.MULTILINE)
_SENTENCE = re.compile(r"^(?![#|<`!>\d\s-])(.+?[.:])(?=\s|$)", re.MULTILINE | re.DOTALL)
_ENTRY = re.compile(r"^ *- (?:(?P<name>[^:\n]+): )?(?P<page>[\w./-]+\.md)$|^ *- (?P<section>[^:\n]+):$", re.MULTILINE)
"""A line of the navigation: a page, or the name of a section."""


def main(folder: str) -> int:
    """Write everything into a folder, which is emptied first."""
    top = Path(folder)
    shutil.rmtree(top, ignore_errors=True)
    docs = top / "docs"
    shutil.copytree(ROOT / "docs", docs)
    for path in (SETTINGS.with_name("site.css"), SETTINGS.with_name("site.js"), ICON):
        shutil.copy(path, docs)
    for name, place in MOVED.items():
        shutil.copy(ROOT / name, docs / place)
    (docs / "clients").mkdir()
    for name, text in clients.pages().items():
        (docs / "clients" / f"{name}.md").write_text(text, encoding="utf-8")
    for name in sorted({name for page in docs.rglob("*.md") for name in _copied(page, docs)}):
        target = docs / "files" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target)
    settings = _navigation(SETTINGS.read_text(encoding="utf-8"), docs)
    (top / "mkdocs.yml").write_text(settings, encoding="utf-8")
    texts = {page.relative_to(docs).as_posix(): _linked(page, docs) for page in docs.rglob("*.md")}
    for name, text in texts.items():
        (docs / name).write_text(indented(text), encoding="utf-8")
    entries = list(_entries(settings))
    (docs / "llms.txt").write_text(contents(settings, entries, texts), encoding="utf-8")
    whole = (f"<!-- {_address(page)} -->\n\n{texts[page].strip()}\n" for _, _, page in entries)
    (docs / "llms-full.txt").write_text("\n".join(whole), encoding="utf-8")
    return 0


def contents(settings: str, entries: list[tuple[str, str, str]], texts: dict[str, str]) -> str:
    """List all pages for a program: each with its title, its address and its first sentence."""
    name, about = (_line(rf"site_{key}: (.+)", settings) for key in ("name", "description"))
    lines, last = [f"# {name[1]}", "", f"> {about[1]}"], ""
    for section, title, page in entries:
        if section != last:
            lines += ["", f"## {section}", ""]
            last = section
        lines.append(f"- [{title or _title(texts[page])}]({_address(page)}): {summary(texts[page])}".rstrip(": "))
    return "\n".join(lines) + "\n"


def indented(text: str) -> str:
    """Indent what belongs to an item of a list by four spaces, as Python's Markdown wants; GitHub takes two."""
    parts, end = [], 0
    for fence in _FENCE.finditer(text):
        parts.append(_INDENTED.sub("    ", text[end : fence.start()]))
        more = " " * (4 - len(fence[1])) if len(fence[1]) in (2, 3) else ""
        parts.append(re.sub(r"^(?=.)", more, fence[0], flags=re.MULTILINE))
        end = fence.end()
    return "".join((*parts, _INDENTED.sub("    ", text[end:])))


def summary(text: str) -> str:
    """The first sentence of a page, without marks."""
    found = _SENTENCE.search(_FENCE.sub("", text))
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(found[1].split())) if found else ""
    return re.sub(r"[*`]", "", plain)


def _navigation(settings: str, docs: Path) -> str:
    """Put the pages of clients and the decisions into the navigation."""
    decisions = [f"adr/{page.name}" for page in sorted((docs / "adr").glob("*.md"))]
    for mark, names in (("clients", [f"clients/{name}.md" for name in clients.pages()]), ("decisions", decisions)):
        line = _line(rf"( *)# {mark}\n", settings)
        settings = settings.replace(line[0], "".join(f"{line[1]}- {name}\n" for name in names))
    return settings


def _line(pattern: str, settings: str) -> re.Match[str]:
    found = re.search(f"^{pattern}", settings, re.MULTILINE)
    if found is None:
        raise SystemExit(f"{SETTINGS} has no line {pattern}")
    return found


def _entries(settings: str) -> Iterator[tuple[str, str, str]]:
    """Each page of the navigation: its section, its name there, its path."""
    section = "Start"
    for line in _ENTRY.finditer(settings.partition("\nnav:\n")[2]):
        if line["section"]:
            section = line["section"]
        else:
            yield ("Start" if line[0].startswith("  - ") else section), line["name"] or "", line["page"]


def _copied(page: Path, docs: Path) -> set[str]:
    """The files of the repository that a page links to."""
    paths = {_from_top(page, docs, link) for link in _LINK.findall(page.read_text(encoding="utf-8"))}
    return {path for path in paths if COPIED.match(path) and (ROOT / path).is_file()}


def _linked(page: Path, docs: Path) -> str:
    """A page's text, with links to where their pages stand on the site."""
    up = "../" * (len(page.relative_to(docs).parts) - 1)

    def place(link: re.Match[str]) -> str:
        path = _from_top(page, docs, link[1])
        return up + (MOVED.get(path) or (f"files/{path}" if COPIED.match(path) else path.removeprefix("docs/")))

    return _LINK.sub(place, page.read_text(encoding="utf-8"))


def _from_top(page: Path, docs: Path, link: str) -> str:
    """A link as a path from the top of the repository; pages of clients link as if they stood in ``docs/``."""
    home = page.relative_to(docs).as_posix()
    is_from_top = home in MOVED.values()
    parts = [] if is_from_top else ["docs", *([] if home.startswith("clients/") else Path(home).parent.parts)]
    for part in link.split("/"):
        if part == "..":
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def _title(text: str) -> str:
    return text.partition("\n")[0].lstrip("# ")


def _address(page: str) -> str:
    return "index.html" if page == "index.md" else f"{page.removesuffix('.md')}/"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
