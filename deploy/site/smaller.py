"""Drops from the built site what no page of it uses: rules and variables of styles, and the blanks between elements.

``make site`` runs it before it compresses the files. A rule stays if each class, id and value that its selector names
is in a page's elements or in a script; the theme's styles are for many more features than this site has.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

_WORD = re.compile(r"[\w-]+")
_ELEMENT = re.compile(r"<[a-zA-Z][^>]*>")
_EXACT = re.compile(r"(<(?:pre|script|textarea)\b.*?</(?:pre|script|textarea)>)", re.DOTALL)
"""What keeps its blanks."""
_STRING = r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\''
_PIECE = re.compile(rf"{_STRING}|url\([^)\"']*\)|/\*.*?\*/|.", re.DOTALL)
_NEGATED = re.compile(r":not\([^()]*\)")
_NAMED = re.compile(r"[.#]((?:\\.|[\w-])+)|\[[\w-]+[~|^$*]?=[\"']?([\w-]+)[\"']?\]")
_COMMA = re.compile(r",(?![^(]*\))(?![^\[]*\])")
_VARIABLE = re.compile(rf"(?<=[{{;\s])(--[\w-]+):((?:{_STRING}|url\([^)\"']*\)|[^;}}\"'])*);?")
_GROUPS = ("@media", "@supports")


def words_of(site: Path) -> AbstractSet[str]:
    """Return all that a selector of a rule in use can name."""
    words: set[str] = set()
    for page in site.rglob("*.html"):
        words.update(word for tag in _ELEMENT.findall(page.read_text("utf-8")) for word in _WORD.findall(tag))
    for script in site.rglob("*.js"):
        words.update(_WORD.findall(script.read_text("utf-8")))
    words.discard("rtl")  # scripts ask whether a page is written from right to left; none is
    return words


def smaller_styles(styles: Sequence[str], words: AbstractSet[str]) -> list[str]:
    """Return all styles without the rules that name anything else, and without the variables that none then uses."""
    ruled = ["".join(_rules(text, lambda selector: _is_used(selector, words))) for text in styles]
    used = words | {name for text in ruled for name in re.findall(r"var\(\s*(--[\w-]+)", text)}
    return [_VARIABLE.sub(lambda found: found[0] if found[1] in used else "", text) for text in ruled]


def smaller_page(text: str) -> str:
    """Return a page with one line's end for each piece of blanks that has one, outside of code."""
    pieces = _EXACT.split(text)
    return "".join(piece if place % 2 else re.sub(r"\s*\n\s*", "\n", piece) for place, piece in enumerate(pieces))


def _is_used(selector: str, words: AbstractSet[str]) -> bool:
    named = _NAMED.findall(_NEGATED.sub("", selector))
    return all((name.replace("\\", "") or value) in words for name, value in named)


def _rules(text: str, is_used: Callable[[str], bool]) -> Iterator[str]:
    for head, body in _blocks(text):
        if body is None or (head.startswith("@") and not head.startswith(_GROUPS)):
            yield head if body is None else f"{head}{{{body}}}"
        elif head.startswith(_GROUPS):
            inner = "".join(_rules(body, is_used))
            yield f"{head}{{{inner}}}" if inner else ""
        else:
            selectors = ",".join(selector for selector in _COMMA.split(head) if is_used(selector))
            yield f"{selectors}{{{body}}}" if selectors else ""


def _blocks(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield each rule's head and body; a statement such as ``@charset`` has no body."""
    head, body, depth = "", "", 0
    for piece in _PIECE.findall(text):
        depth += {"{": 1, "}": -1}.get(piece, 0)
        if piece == "}" and depth == 0:
            yield head.strip(), body
            head = body = ""
        elif piece == ";" and depth == 0:
            yield f"{head}{piece}".strip(), None
            head = ""
        elif depth == 0:
            head += "" if piece.startswith("/*") else piece
        elif not (piece == "{" and depth == 1):
            body += piece


def main(site: Path) -> None:
    """Replace the files of a site."""
    files = sorted(site.rglob("*.css"))
    styles = smaller_styles([file.read_text("utf-8") for file in files], words_of(site))
    for file, text in zip(files, styles, strict=True):
        file.write_text(text, "utf-8")
    for file in site.rglob("*.html"):
        file.write_text(smaller_page(file.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
