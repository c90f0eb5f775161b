"""Full text over a conversation's whole history: SQLite's FTS5, in memory, built when somebody asks.

Beside the road. The messages are the store's; an index holds a copy of their texts for as long as it is asked of late,
and what has come since is added when it is asked again. Ranking is bm25, words are found without their accents and by
their beginnings; what is written without spaces between words is found by any three letters in a row.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Sequence

from proxy.core.ports import Hit, Searchable

INDEXES = 16
"""Conversations whose index is kept; one of 10,000 messages takes some 30 MB."""
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


class MessageSearch:
    """Indexes by conversation. The mutable state is these, the one asked longest ago first."""

    def __init__(self, indexes: int = INDEXES) -> None:
        self._most = indexes
        self._indexes: OrderedDict[str, _Index] = OrderedDict()

    def indexed(self, conversation: str) -> tuple[int, str]:
        """How many messages of a conversation are indexed, and the id of the last of them."""
        index = self._indexes.get(conversation)
        return (index.count, index.last) if index else (0, "")

    async def find(
        self, conversation: str, fresh: Sequence[Searchable], query: str, *, limit: int, offset: int = 0, after: int = 0
    ) -> Sequence[Hit]:
        """The messages in which all words of ``query`` stand, the best first.

        :param fresh: the messages after those that are indexed; from the first on, where all are to be indexed anew
        :param after: how many were indexed when they were read; an index that has gone since does not begin with them
        """
        index = self._indexes.pop(conversation, None)
        if index is None or (fresh and fresh[0].position == 1):
            index = _Index()
        self._indexes[conversation] = index
        while len(self._indexes) > self._most:
            self._indexes.popitem(last=False)
        return await asyncio.to_thread(index.find, fresh, query, limit, offset, after)

    def drop(self, conversation: str) -> None:
        """Forget a conversation's texts."""
        self._indexes.pop(conversation, None)


class _Index:
    """One conversation's texts. Asked in threads, one after the other."""

    def __init__(self) -> None:
        self.count = 0
        self.last = ""
        self._lock = threading.Lock()
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        self._database.executescript(_TABLES)

    def __del__(self) -> None:
        self._database.close()

    def find(self, fresh: Sequence[Searchable], query: str, limit: int, offset: int, after: int) -> list[Hit]:
        with self._lock:
            if self.count >= after:  # else there would be a hole, and nobody would ever fill it
                self._add([one for one in fresh if one.position > self.count])
            for table, question in (("words", _words(query)), ("runs", _quoted(query))):
                asked = _FIND.format(table=table, tokens=SNIPPET_TOKENS)
                rows = self._database.execute(asked, (question, limit, offset)).fetchall() if question else []
                if rows or (offset and table == "words" and self._any(table, question)):
                    return [Hit(position, snippet, -score) for position, snippet, score in rows]
            return []

    def _any(self, table: str, question: str) -> bool:
        asked = f"select 1 from {table} where {table} match ? limit 1"  # noqa: S608 - one of two names of ours
        return bool(question) and self._database.execute(asked, (question,)).fetchone() is not None

    def _add(self, fresh: Sequence[Searchable]) -> None:
        for table in ("words", "runs"):
            rows = [(one.position, one.text) for one in fresh]
            self._database.executemany(f"insert into {table}(rowid, text) values (?, ?)", rows)  # noqa: S608 - the same
        if fresh:
            self.count, self.last = fresh[-1].position, fresh[-1].message_id


def _words(query: str) -> str:
    """Every word, or phrase in quotes, as FTS5 takes it; a word's beginning is enough. Nothing in it is an operator."""
    terms = _TERM.findall(query)
    quoted = [(_quoted(phrase or word), "" if phrase else "*") for phrase, word in terms]
    return " ".join(term + ending for term, ending in quoted if term)


def _quoted(text: str) -> str:
    plain = text.replace("\0", " ").replace('"', " ").strip()
    return f'"{plain}"' if plain else ""
