"""Very many tenants, each with a secret word, who send whatever the endpoints take, with each other's ids and names."""

from __future__ import annotations

import json
import random
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any
from urllib.parse import urlencode

from tests.request.talk import long
from tests.security.asking import Got
from tests.security.upstreams import PatientUpstream
from tests.support.answers import Answer, Received
from tests.support.scripted import DIALECTS, Turn, error
from tidemark.server.describing import Operation, Parameter, Shape

WORD = re.compile(r"zq([0-9a-f]{12})")
"""A tenant's secret word; its key, its texts and some of its names have it."""
MODEL_WORD = re.compile(r"yq([0-9a-f]{12})")
"""The same in the name of a model, which the operator may read in log lines and in the labels of metrics."""
SHARED_NAMES = ("talk", "notes", "default", "a b")
"""Names that many tenants give a conversation of theirs."""
KEYS = ("authorization", "x-api-key", "api-key")
MOST_IDS, MOST_OWN = 4000, 30
SHARES = {"previous_response_id": 0.5, "conversation": 0.15, "background": 0.0}
"""How often a member is sent that may be left out, if not in a quarter of all bodies."""
_FOUND: Mapping[str, re.Pattern[str]] = {
    "response": re.compile(r'"id": ?"(resp_[0-9a-f]+)"'),
    "kept": re.compile(r'"id": ?"(conv_\w+)"'),
    "item": re.compile(r'"id": ?"((?:msg|item|rs|cmp)_\w+)"'),
    "file": re.compile(r'"id": ?"(file-\w+)"'),
    "message": re.compile(r'"id": ?"([0-9a-f]{32})"'),
    "preview": re.compile(r'"preview": ?"([^"]+)"'),
    "cursor": re.compile(r'"next_cursor": ?"([^"]+)"'),
    "version": re.compile(r'"version": ?"([^"]+)"'),
    "sealed": re.compile(r'"encrypted_content": ?"([^"]{40,})"'),
}
"""What an answer has that another tenant may send."""


def words_in(text: str) -> set[str]:
    """The secrets of all tenants that a text has."""
    return {*WORD.findall(text), *MODEL_WORD.findall(text)}


@dataclass
class Tenant:
    """One credential, and what it was answered."""

    secret: str
    line: tuple[bytes, bytes]
    said: list[dict[str, Any]] = field(default_factory=list)
    """The messages of its present conversation."""
    own: dict[str, deque[str]] = field(default_factory=dict)

    @property
    def word(self) -> str:
        """Its word."""
        return f"zq{self.secret}"


@dataclass
class Numbered(Received):
    """A request whose answer has ids of its own."""

    number: str = ""

    @property
    def mark(self) -> str:
        return self.number


class GossipingUpstream(PatientUpstream):
    """A provider that tells whoever has an id, and an account, what it keeps under it.

    An account is a key. Mutable: what it keeps, and the requests in which it saw words that do not belong together.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, tuple[str, str]] = {}
        self.mixed: list[str] = []
        self._numbers = random.Random(1)

    def _answer(self, received: Received) -> Answer:
        account = next((received.headers[name] for name in KEYS if name in received.headers), "")
        text = " ".join((received.body.decode("utf-8", "replace"), received.path, received.query))
        words = words_in(text)
        if len(words | words_in(account)) > 1:
            self.mixed.append(f"{received.method} {received.path} of {account!r}: {sorted(words)}")
        mentioned = re.findall(r"(?:resp|msg|conv)_\w+|file-\w+", text)
        gossip = [kept for name in mentioned for owner, kept in [self.kept.get(name, ("", ""))] if owner == account]
        told = " ".join(["I heard", *(f"zq{word}" for word in sorted(words)), *gossip])
        number = f"{self._numbers.getrandbits(64):016x}"
        received = Numbered(number=number, **{each.name: getattr(received, each.name) for each in fields(received)})
        if received.method == "POST" and received.dialect:
            self._keep([f"resp_{number}", f"msg_{number}"], account, told)
            answer: Answer = DIALECTS[received.dialect].tell(Turn(told), received)
            return answer
        if "/files" in received.path and received.method == "POST":
            self._keep([f"file-{number}"], account, told)
            return Answer([json.dumps({"id": f"file-{number}", "object": "file", "note": told}).encode()])
        if "/files/" in received.path and not gossip:  # it keeps the newest only
            return error(404, "No such file.")
        if "/files" in received.path:
            everything = [kept for owner, kept in self.kept.values() if owner == account]
            return Answer([json.dumps({"object": "list", "data": gossip or everything[-5:]}).encode()])
        if received.path.startswith("/v1/responses/") and gossip:
            shown = {"id": mentioned[0], "object": "response", "status": "completed", "output": [], "note": gossip}
            return Answer([json.dumps(shown).encode()])
        return super()._answer(received)

    def _keep(self, names: Sequence[str], account: str, text: str) -> None:
        self.kept.update(dict.fromkeys(names, (account, text)))
        while len(self.kept) > 4 * MOST_IDS:
            del self.kept[next(iter(self.kept))]


class Crowd:
    """Makes requests and looks at the answers. Mutable: what tenants said, and the ids that they were answered.

    :param operations: what they may send
    """

    def __init__(self, count: int, operations: Sequence[Operation], seed: int) -> None:
        self.chance = random.Random(seed)
        self._operations = operations
        self._pool: dict[str, deque[str]] = {}
        self.owners: dict[str, str] = {}
        """The word of the tenant to whom a conversation was answered first."""
        self.tenants = [self._tenant(number) for number in range(count)]

    def _tenant(self, number: int) -> Tenant:
        secret = f"{self.chance.getrandbits(48):012x}"
        key = f"sk-zq{secret}".encode()
        line = ((b"authorization", b"Bearer " + key), (b"x-api-key", key), (b"api-key", key))[number % 3]
        return Tenant(secret, line)

    def request(self, tenant: Tenant) -> tuple[Operation, str, str, list[tuple[bytes, bytes]], bytes]:
        """A request of a tenant: its operation, path, query, header lines and body."""
        operation = self._chosen()
        path = re.sub(r"\{(\w+)\}", lambda part: self._part(part[1], operation.path, tenant), operation.path)
        query = [(each.name, self._text(each, tenant)) for each in self._some(operation, "query")]
        lines = [tenant.line, (b"content-type", b"application/json")]
        lines += [
            (each.name.lower().encode(), self._text(each, tenant).encode()) for each in self._some(operation, "header")
        ]
        body = b""
        if operation.body is not None:
            if operation.body.media_types[0] == "application/jsonl":
                body = b"\n".join(json.dumps(said).encode() for said in self._talk(tenant))
            else:
                body = json.dumps(self._value(operation.body.shape, "", tenant)).encode()
            if operation.path == "/v1/{path}":
                body = json.dumps(
                    {"model": self._model(tenant), "purpose": tenant.word, "file_id": self._id("file", tenant)}
                ).encode()
        return operation, path, urlencode(query), lines, body

    def look(self, tenant: Tenant, operation: Operation, got: Got) -> list[str]:
        """Harvest ids, and return what of the answer belongs to somebody else."""
        text = got.text
        words = set(WORD.findall(text)) if operation.path == "/metrics" else words_in(text)
        foreign = sorted(words - {tenant.secret})
        conversation = got.header(b"x-tidemark-conversation")
        if conversation:
            self._note("talk", conversation, tenant)
            if self.owners.setdefault(conversation, tenant.secret) != tenant.secret:
                foreign.append(f"the conversation {conversation} of {self.owners[conversation]}")
        for kind, pattern in _FOUND.items():
            for value in pattern.findall(text)[:4]:
                self._note(kind, value, tenant)
        return foreign

    def kinds(self) -> set[str]:
        """The kinds of ids that were answered and sent by others."""
        return set(self._pool)

    def _chosen(self) -> Operation:
        """An operation; those that store something are chosen more often, so that there is something to find."""
        operation = self.chance.choice(self._operations)
        if self.chance.random() < 0.4:
            model_requests = [each for each in self._operations if each.path in _STORING]
            return self.chance.choice(model_requests)
        return operation

    def _some(self, operation: Operation, place: str) -> list[Parameter]:
        share = 0.6 if place == "query" else 0.25
        return [
            each
            for each in operation.parameters
            if each.place == place and (each.required or self.chance.random() < share)
        ]

    def _note(self, kind: str, value: str, tenant: Tenant) -> None:
        self._pool.setdefault(kind, deque(maxlen=MOST_IDS)).append(value)
        tenant.own.setdefault(kind, deque(maxlen=MOST_OWN)).append(value)

    def _id(self, kind: str, tenant: Tenant) -> str:
        """An id of the tenant's own, of anybody's, or of nobody's."""
        chance, own, pool = self.chance.random(), tenant.own.get(kind), self._pool.get(kind)
        if own and chance < 0.5:
            return self.chance.choice(own)
        if pool and chance < 0.95:
            return self.chance.choice(pool)
        return f"{self.chance.getrandbits(128):032x}"

    def _part(self, name: str, path: str, tenant: Tenant) -> str:
        carried = ("files", "files/{}", "files/{}/content", "batches", "vector_stores/{}")
        makers: Mapping[str, Callable[[], str]] = {
            "model": lambda: self._model(tenant),
            "handle": lambda: "m" + self._id("message", tenant)[:8],
            "item": lambda: self._id("item", tenant),
            "call": lambda: "generateContent",
            "path": lambda: self.chance.choice(carried).format(self._id("file", tenant)),
        }
        if name in makers:
            return makers[name]()
        kind = next((kind for start, kind in _KINDS.items() if path.startswith(start)), "talk")
        return self._name(tenant) if kind == "talk" and self.chance.random() < 0.4 else self._id(kind, tenant)

    def _model(self, tenant: Tenant) -> str:
        return self.chance.choice(("small", "small", "small", "shared", "shared", f"own-yq{tenant.secret}"))

    def _name(self, tenant: Tenant) -> str:
        return self.chance.choice((*SHARED_NAMES, f"name of {tenant.word}"))

    def _text(self, parameter: Parameter, tenant: Tenant) -> str:
        name = parameter.name.lower()
        makers: Mapping[str, Callable[[], str]] = {
            "x-tidemark-conversation": lambda: self._name(tenant),
            "x-tidemark-history": lambda: self.chance.choice(("client", "stored", "stored; known=1")),
            "x-tidemark-keep": lambda: self.chance.choice(("all", "all", "all", "summaries", "none")),
            "idempotency-key": lambda: self.chance.choice(("once", "twice", tenant.word)),
            "last-event-id": lambda: "0-0-0",
            "model": lambda: self._model(tenant),
            "name": lambda: self._name(tenant),
            "cursor": lambda: self._id("cursor", tenant),
            "after": lambda: self._id("item", tenant),
            "q": lambda: self.chance.choice(("Point", "heard", "Remember", tenant.word)),
        }
        made = makers.get(name)
        return made() if made else str(self._value(parameter.shape, name, tenant))

    def _talk(self, tenant: Tenant) -> list[dict[str, Any]]:
        """The tenant's conversation with one message more, or a new one."""
        if not tenant.said or len(tenant.said) > 30 or self.chance.random() < 0.1:
            tenant.said = [{"role": "user", "content": f"Remember my word {tenant.word}. Never tell it to others."}]
        else:
            question = f"{long(len(tenant.said), 120)} What was my word {tenant.word}?"
            tenant.said += [
                {"role": "assistant", "content": f"I heard {tenant.word}"},
                {"role": "user", "content": question},
            ]
        return tenant.said

    def _input(self, tenant: Tenant) -> Any:
        items: list[Any] = [{"role": "user", "content": f"My word is {tenant.word}. {long(self.chance.randrange(9))}"}]
        kind = self.chance.randrange(5)
        if kind == 1:
            items.insert(0, {"type": "item_reference", "id": self._id("item", tenant)})
        if kind == 2:
            items.insert(0, {"type": "compaction", "encrypted_content": self._id("sealed", tenant)})
        if kind == 3:
            items.append({"type": "compaction_trigger"})
        if kind == 4:
            content = [{"type": "input_file", "file_id": self._id("file", tenant)}]
            items.insert(0, {"type": "message", "role": "user", "content": content})
        return items

    def _value(self, shape: Shape, name: str, tenant: Tenant) -> Any:
        """A value of a shape; names that mean something have what they mean."""
        makers: Mapping[str, Callable[[], Any]] = {
            "model": lambda: self._model(tenant),
            "messages": lambda: self._talk(tenant),
            "input": lambda: self._input(tenant),
            "items": lambda: [{"role": "user", "content": f"Kept: {tenant.word}"}],
            "metadata": lambda: {"word": tenant.word},
            "previous_response_id": lambda: self._id("response", tenant),
            "conversation": lambda: self._id("kept", tenant),
            "preview": lambda: self._id("preview", tenant),
            "version": lambda: self._id("version", tenant),
            "query": lambda: self.chance.choice(("Point", "Remember", tenant.word)),
            "text": lambda: f"The word is {tenant.word}.",
            "state": lambda: self.chance.choice(("", "compacted")),
            "strategy": lambda: "extractive",
            "max_tokens": lambda: 100,
            "background": lambda: False,
            "tools": list,
        }
        if name in makers:
            return makers[name]()
        if "const" in shape:
            return shape["const"]
        choices: Any = shape.get("enum") or shape.get("anyOf")
        if choices:
            chosen = self.chance.choice(choices)
            return chosen if "enum" in shape else self._value(chosen, name, tenant)
        return self._plain(shape, name, tenant)

    def _plain(self, shape: Shape, name: str, tenant: Tenant) -> Any:
        kinds: Any = shape.get("type", "object")
        kind = kinds if isinstance(kinds, str) else kinds[0]
        if kind == "object":
            properties: Any = shape.get("properties", {})
            required: Any = shape.get("required", ())
            chosen = [each for each in properties if each in required or self.chance.random() < SHARES.get(each, 0.25)]
            return {each: self._value(properties[each], each, tenant) for each in chosen}
        if kind == "array":
            return []
        if kind == "boolean":
            return self.chance.random() < 0.3
        if kind in ("integer", "number"):
            least: Any = shape.get("minimum", 0)
            return least + self.chance.randrange(50)
        return f"{tenant.word} {name}"


_STORING = ("/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/conversations")
_KINDS = {"/v1/responses": "response", "/v1/conversations": "kept"}
"""What an id of a path is, by its beginning; of all others it is a conversation."""
