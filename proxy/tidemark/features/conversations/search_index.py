"""Full-text search over a conversation's whole history: SQLite's FTS5 in memory, built on the first search.

``conversation_reader.py`` asks it. The store has the messages; an index is a copy of their texts for as long as the
conversation is searched, and new messages are added at the next search. Results are ranked by bm25. Words match without
their accents and by their beginnings; text without spaces between words matches by any three letters in a row.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
import threading
from collections.abc import Sequence

from tidemark.core.bounded import BoundedCache
from tidemark.core.frozen import frozen

MAX_INDEXES = 16
"""Conversations whose index is kept; one of 10,000 messages takes about 30 MB."""
SNIPPET_TOKENS = 24
_TERM = re.compile(r'"([^"]+)"|(\S+)')
_TABLES = """
create virtual table words using fts5(text, tokenize = "unicode61 remove_diacritics 2");
create virtual table runs using fts5(text, tokenize = "trigram");
"""
_FIND = """
select rowid, snippet({table}, 0, '[', ']', ' ... ', {tokens}), bm25({table})
from {table} where {table} match ? order by bm25({table}), rowid limit ? offset ?
"""


@frozen
class Searchable:
    """A message as it is indexed."""

    position: int
    message_id: str
    text: str


@frozen
class Match:
    """A message that matches a query."""

    position: int
    snippet: str
    """The text around the matching words, which stand in brackets."""
    score: float
    """Larger is better; scores of two searches cannot be compared."""


class MessageSearch:
    """Searches conversations. The mutable state is their indexes, least recently searched first."""

    def __init__(self, max_indexes: int = MAX_INDEXES) -> None:
        self._indexes: BoundedCache[str, _Index] = BoundedCache(max_indexes)

    def indexed(self, conversation: str) -> tuple[int, str]:
        """Return how many messages of a conversation are indexed, and the id of the last of them."""
        index = self._indexes.get(conversation)
        return (index.count, index.last_id) if index else (0, "")

    async def find(
        self, conversation: str, fresh: Sequence[Searchable], query: str, *, limit: int, offset: int = 0, after: int = 0
    ) -> Sequence[Match]:
        """Return the messages that have all words of ``query``, best match first.

        :param fresh: the messages after the indexed ones; all messages, from the first on, to index them again
        :param after: how many were indexed when ``fresh`` was read; an index that was dropped since does not add them
        """
        index = self._indexes.get(conversation)
        if index is None or (fresh and fresh[0].position == 1):
            index = _Index()
        self._indexes.put(conversation, index)
        return await asyncio.to_thread(index.find, fresh, query, limit, offset, after)

    def drop(self, conversation: str) -> None:
        self._indexes.pop(conversation, None)


class _Index:
    """The index of one conversation. Threads use it one after the other."""

    def __init__(self) -> None:
        self.count = 0
        self.last_id = ""
        self._lock = threading.Lock()
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        self._database.executescript(_TABLES)

    def __del__(self) -> None:
        self._database.close()

    def find(self, fresh: Sequence[Searchable], query: str, limit: int, offset: int, after: int) -> list[Match]:
        with self._lock:
            if self.count >= after:  # otherwise messages between the indexed ones and these would never be indexed
                self._add([message for message in fresh if message.position > self.count])
            for table, expression in (("words", _words(query)), ("runs", _quoted(query))):
                statement = _FIND.format(table=table, tokens=SNIPPET_TOKENS)
                rows = self._database.execute(statement, (expression, limit, offset)).fetchall() if expression else []
                if rows or (offset and table == "words" and self._has_match(table, expression)):
                    return [Match(position, snippet, -score) for position, snippet, score in rows]
            return []

    def _has_match(self, table: str, expression: str) -> bool:
        statement = f"select 1 from {table} where {table} match ? limit 1"  # noqa: S608 - one of two constant names
        return bool(expression) and self._database.execute(statement, (expression,)).fetchone() is not None

    def _add(self, fresh: Sequence[Searchable]) -> None:
        for table in ("words", "runs"):
            rows = [(message.position, message.text) for message in fresh]
            self._database.executemany(f"insert into {table}(rowid, text) values (?, ?)", rows)  # noqa: S608 - the same
        if fresh:
            self.count, self.last_id = fresh[-1].position, fresh[-1].message_id


def _words(query: str) -> str:
    """Return every word or quoted phrase of a query in FTS5's syntax, without operators; words match as prefixes."""
    terms = _TERM.findall(query)
    quoted = [(_quoted(phrase or word), "" if phrase else "*") for phrase, word in terms]
    return " ".join(term + ending for term, ending in quoted if term)


def _quoted(text: str) -> str:
    plain = text.replace("\0", " ").replace('"', " ").strip()
    return f'"{plain}"' if plain else ""
