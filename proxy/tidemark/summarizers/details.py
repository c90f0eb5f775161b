"""Finds what texts name: files, commands, links and identifiers.

``ledger`` collects them. Each is taken whole or not at all: a part of a path or of a ticket's number names another
thing. Each pattern is matched only if a word has a character that it needs; most have none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import filterfalse

FILES, COMMANDS, LINKS, IDENTIFIERS = "Files", "Commands", "Links", "Identifiers"

_EXTENSIONS = (
    "py|pyi|ipynb|js|jsx|mjs|cjs|ts|tsx|vue|svelte|rs|go|java|kt|c|h|cc|cpp|hpp|cs|rb|php|swift|scala|lua|dart|sh|bat"
    "|ps1|sql|md|rst|txt|rtf|tex|bib|json|jsonl|ya?ml|toml|ini|cfg|conf|properties|env|lock|html?|css|scss|xml|csv|tsv"
    "|parquet|sqlite|dump|log|tf|proto|pdf|docx?|xlsx?|pptx?|odt|ods|ics|eml|png|jpe?g|gif|svg|webp|heic|tiff?|mp3|mp4"
    "|m4a|wav|mov|zip|tar|gz|tgz|7z|bin|bak|iso|exe|jar|whl|pem|crt|geojson|gpx|epub|srt"
)
_FILE = re.compile(
    # A name or a path, whose folders may have any letters; a name that stands alone begins with a Latin one.
    r"(?<![A-Za-zÀ-ɏ0-9_/.:@\\~$-])"
    r"(?:(?:[A-Za-z]:\\|~/|\.{1,2}/|/)?[A-Za-zÀ-ɏ0-9_.+~-]{1,64}(?:[\\/][\w.+~-]{1,64})*"
    rf"(?<=\w)\.(?:{_EXTENSIONS})(?![A-Za-zÀ-ɏ0-9_(]|[.-]\w|/\w)"
    r"|[A-Za-z]:(?:\\[\w.+~-]{1,64})+(?<=\w)"
    r"|(?:~/|\.{1,2}/|/)?(?:[A-Za-z_.][\w.+-]{1,64}/)+(?=[,;:!?)\"'`»…]|\.?\Z))"
)
_EXTENSION = re.compile(r"\.[a-z7]")
_NO_FILE = re.compile(
    r"(?i:(?:node|vue|next|nuxt|express|react|three|chart|discord|alpine|ember|d3|moment|socket)\.js"
    r"|(?:console|math|np|logger|process|window|document|this|self)\.\w+|(?:and|or|und|et|y|e)/|https?:?/.*)\Z"
)
_MAX_PATH_CHARS = 200
_LINK = re.compile(
    r"\bhttps?://[^\s<>\"'`)\]，。；：、！？）】》」』»”…]+[^\s<>\"'`)\].,;:!?，。；：、！？）】》」』»”…*]"
)

# An identifier is a whole run of these characters; its forms follow.
_RUN = re.compile(r"(?<![A-Za-zÀ-ɏ0-9_/.:@#+=-])[A-Za-z0-9_#][A-Za-z0-9_.@#/:+=\\-]{2,99}(?![A-Za-zÀ-ɏ])")
_IDENTIFIER = re.compile(
    r"[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64}){1,4}"
    # Parts in capitals and parts with digits, at least one of each: PAY-3428, FR-2.1.1, 2024-CES-0187, GX-20251204-07
    r"|(?=[\d-]*[A-Z])(?:[A-Z0-9]{1,16}-){1,4}(?=[A-Z]{0,4}\d)[A-Z0-9]{1,16}(?:\.\d{1,6}){0,5}(?:-[A-Z0-9]{1,8})?"
    r"|#\d{2,9}|v\d{1,4}(?:\.\d{1,9}){1,4}|\d{1,4}(?:\.\d{1,9}){2,3}(?:[-+][\w.]{1,20})?"
    r"|(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}"
    r"|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    # A name of lower-case parts, one of which is a hash: card-router-7f5c9b6d4-8wq2n
    r"|(?:[a-z0-9]{1,32}-){1,6}(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,16}(?:-[a-z0-9]{1,16})?"
)
_NO_IDENTIFIER = re.compile(
    # Standards, periods, dates, sums, and addresses that stand for any
    r"(?:UTF|ISO|SHA|MD|AES|RSA|COVID|GPT|WPA|USB|HTTP|TLS|WGS|LTE|RFC|ASCII|CO|DIN|EN|IEC|IEEE|[QHTS]|FY|KW|CW|B|D|K)-?\d"
    r"|\d{1,2}\.\d{1,2}\.\d{2}(?:\d\d)?\Z|\d{1,3}(?:\.\d{3})+\Z|0\d(?:\.\d\d){2,}\Z|0\.0\.0\.0|127\.0\.0\.1"
)
_DIGIT = re.compile(r"\d")
_PLAIN_NUMBER = re.compile(r"\d+(?:\.\d+)?[^\w.@#/-]*")
"""A word with no identifier in it, such as most words of a table."""

_FENCE = re.compile(r"^[ \t>]*+```[ \t]*+(\w*+)[^\n]*+\n(.*?)^[ \t>]*+```", re.DOTALL | re.MULTILINE)
_SHELLS = frozenset({"sh", "bash", "shell", "zsh", "console", "terminal"})
_PROMPT = re.compile(r"^[ \t>]*\$ (?=[A-Za-z./~_])(.+)$", re.MULTILINE)
_PROGRAMS = (
    "git|pip3?|uv|npm|npx|pnpm|yarn|make|docker|kubectl|helm|terraform|python3?|pytest|cargo|curl|wget|ssh|scp|psql"
    "|redis-cli|systemctl|apt(?:-get)?|brew|ls|rm|cp|mv|mkdir|grep|sed|cat|chmod|bash|sh|node|ruff|mypy|gh|aws|gcloud|az"
)
_INLINE = re.compile(rf"(?<!`)`((?:sudo )?(?:{_PROGRAMS}) [^`\n]{{1,160}})`(?!`)")
"""A program with its arguments in a code span, as people quote what they ran (S2-3)."""
_NO_COMMAND = re.compile(r"(?:#|if\b|then\b|else\b|fi\b|for\b|while\b|do\b|done\b|case\b|esac\b|[{}()\[]|.*<<)")
_MAX_COMMAND_CHARS = 400
"""A longer command is a script."""
_COMMAND_KEYS = ("command", "cmd", "script")
_PATH_KEYS = ("path", "file_path", "filepath", "filename", "file", "target_file")

NamedDetail = tuple[str, str]
"""A kind of the ledger, and what a sentence names of it."""


class DetailFinder:
    """Finds the details of sentences.

    It remembers what each word names, since most words come again. So it is made for one conversation and then dropped.
    """

    def __init__(self) -> None:
        self._of_word: dict[str, tuple[NamedDetail, ...]] = {}
        self._nameless: set[str] = set()

    def details(self, sentence: str) -> list[NamedDetail]:
        """Return what a sentence names; of each kind in the order of the sentence."""
        details: list[NamedDetail] = []
        rest = sentence
        if "http" in sentence:
            details += [(LINKS, match[0]) for match in _LINK.finditer(sentence)]
            rest = _LINK.sub(" ", sentence)
        for word in filterfalse(self._nameless.__contains__, rest.split()):
            details += self._of_word.get(word) or self._details_of_word(word)
        return details

    def _details_of_word(self, word: str) -> tuple[NamedDetail, ...]:
        """Return what a new word names, and remember it."""
        details = () if word.isalpha() else tuple(_named_in(word))
        if details:
            self._of_word[word] = details
        else:
            self._nameless.add(word)
        return details


def commands_in(text: str) -> Iterator[str]:
    """Yield the commands of a text: the lines of fenced shell blocks, and lines after ``$ ``."""
    if "```" in text:
        for match in _FENCE.finditer(text):
            if match[1].lower() in _SHELLS and not _PROMPT.search(match[2]):
                lines = match[2].replace("\\\n", " ").split("\n")
                yield from filter(None, map(_command, lines))
    if "$ " in text:
        yield from filter(None, (_command(match[1]) for match in _PROMPT.finditer(text)))
    if "`" in text:
        yield from filter(None, (_command(match[1]) for match in _INLINE.finditer(text)))


def named_by_call(name: str, arguments: Mapping[str, object]) -> Iterator[NamedDetail]:
    """Yield the commands and the files that the arguments of a tool's call name.

    :param name: the tool's
    """
    is_shell = any(shell in name.lower() for shell in ("bash", "shell", "terminal"))
    for key, value in arguments.items():
        if not isinstance(value, str):
            continue
        if key in _COMMAND_KEYS or (is_shell and len(arguments) == 1):
            if len(value) <= _MAX_COMMAND_CHARS and value.strip():
                yield COMMANDS, value
                for word in value.split():
                    yield from ((FILES, file) for file in _files_in(word))
        elif key in _PATH_KEYS and len(value) <= _MAX_PATH_CHARS and any(map(str.isalnum, value)):
            yield FILES, value


def _command(line: str) -> str:
    command = line.strip()
    return "" if len(command) > _MAX_COMMAND_CHARS or _NO_COMMAND.match(command) else command


def _named_in(word: str) -> Iterator[NamedDetail]:
    """Yield the paths and identifiers of a word; neither has a space."""
    if "/" in word or "\\" in word or ("." in word and _EXTENSION.search(word)):
        for file in _files_in(word):
            yield FILES, file
    if "@" in word or (_DIGIT.search(word) and not _PLAIN_NUMBER.fullmatch(word)):
        for match in _RUN.finditer(word):
            run = match[0].rstrip(".:/-+=@#")
            if _IDENTIFIER.fullmatch(run) and not _NO_IDENTIFIER.match(run):
                yield IDENTIFIERS, run


def _files_in(word: str) -> Iterator[str]:
    for match in _FILE.finditer(word):
        if not _NO_FILE.match(match[0]) and "://" not in word:
            yield match[0]
