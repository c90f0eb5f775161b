"""Schemathesis sends what ``/openapi.json`` describes, and what it does not, to a real server with its own store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.e2e.test_command import CONFIG, WAIT_SECONDS, Machine
from tests.request.talk import assistant, long, user
from tests.security.upstreams import PatientUpstream
from tests.support.answers import Json
from tests.support.scripted import ScriptedUpstream
from tests.support.serving import NO_TLS, Serving
from tidemark.app.features import descriptions
from tidemark.server.endpoints.description import OPERATIONS
from tidemark.server.openapi import document

pytestmark = [pytest.mark.security, pytest.mark.timeout(7200)]

EXAMPLES = int(os.environ.get("TIDEMARK_EXAMPLES", "20"))
"""Requests for each operation: `make fuzz` asks for more."""
ADMIN = "an admin token that only this test has"
SOMEBODY = {"x-api-key": "sk-somebody"}
ENDLESS = "/tidemark/events"
"""A listener would wait for ten minutes; ``tests/features/live_events`` listens."""
ALL_OPERATIONS = [*OPERATIONS, *descriptions()]
LABELS = [f"{each.method} {each.path}" for each in ALL_OPERATIONS if each.path != ENDLESS]


@cache
def operations() -> dict[str, Any]:
    """What schemathesis makes of the document; its import takes seconds, which no other suite has to wait."""
    import schemathesis

    said = [b'{"role": "user", "content": "Hello."}', b"{}", b"[]", b"\xff", b""]
    schemathesis.openapi.media_type("application/jsonl", st.lists(st.sampled_from(said)).map(b"\n".join))
    results: Any = schemathesis.openapi.from_dict(document(ALL_OPERATIONS)).get_all_operations()
    return {operation.label: operation for operation in (result.ok() for result in results)}


def checks() -> list[Any]:
    """What every answer must pass."""
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks as described

    return [
        not_a_server_error,
        described.status_code_conformance,
        described.content_type_conformance,
        described.response_schema_conformance,
        described.response_headers_conformance,
    ]


class Target:
    """A running server, and a client whose credential is that of all requests but the operator's."""

    def __init__(self, url: str) -> None:
        import requests

        self.url = url
        self.session = requests.Session()
        self.session.trust_env = False

    def known(self, path: str) -> dict[str, str] | None:
        """Parts of a path that lead to something, which is stored now; None if it takes no id."""
        if "{model}" in path:
            return {"model": "small"} | ({"call": "generateContent"} if "{call}" in path else {})
        made = next((make for start, make in self._makers().items() if path.startswith(start + "/{id}")), None)
        others = {"item": "msg_1"} if "{item}" in path else {"handle": "r1"} if "{handle}" in path else {}
        return None if made is None else {"id": made()} | others

    def _makers(self) -> dict[str, Callable[[], str]]:
        said = [user(f"Remember OPS-44{number}, and never touch production. {long(number)}") for number in range(20)]
        talk = {"model": "small", "messages": [turn for text in said for turn in (text, assistant("Noted."))][:-1]}
        conversation = {"items": [{"id": "msg_1", "role": "user", "content": "Hello."}]}
        return {
            "/tidemark/conversations": lambda: self._post("chat/completions", talk).headers["x-tidemark-conversation"],
            "/v1/responses": lambda: str(self._post("responses", {"model": "small", "input": "Hello."}).json()["id"]),
            "/v1/conversations": lambda: str(self._post("conversations", conversation).json()["id"]),
        }

    def _post(self, path: str, body: Json) -> httpx.Response:
        with httpx.Client(timeout=WAIT_SECONDS, verify=NO_TLS) as client:
            answer = client.post(f"{self.url}/v1/{path}", json=body, headers=SOMEBODY)
        assert answer.status_code == 200, answer.text
        return answer


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """One server for all operations, whose upstream speaks every dialect."""
    with ExitStack() as stack:
        served = stack.enter_context(Serving(PatientUpstream()))
        machine = Machine(tmp_path_factory.mktemp("described"), ScriptedUpstream(), served.url, stack)
        environ = {"TIDEMARK_ADMIN_TOKEN": ADMIN, "TIDEMARK_LITELLM": "off"}
        tidemark = machine.serve("--config", str(machine.config(CONFIG)), environ=environ)
        yield Target(tidemark.url)
        assert tidemark.end() == 0
        assert "Traceback" not in tidemark.text


def cases(operation: Any, known: dict[str, str] | None) -> st.SearchStrategy[Any]:
    """Requests that fit the description and such that do not, with unknown ids and known ones."""
    from schemathesis import GenerationMode

    paths = [None] if known is None else [None, known]
    modes = [GenerationMode.POSITIVE]
    if operation.body or operation.query or operation.headers:
        modes.append(GenerationMode.NEGATIVE)
    return st.one_of(
        *(
            operation.as_strategy(mode, **({} if path is None else {"path_parameters": path}))
            for mode in modes
            for path in paths
        )
    )


@pytest.mark.parametrize("label", LABELS)
def test_every_answer_is_as_described(target: Target, label: str) -> None:
    """No fault of the server, no status, type, body or header that the document does not have."""
    operation = operations()[label]

    @settings(
        settings.get_profile("full"),
        max_examples=EXAMPLES,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=[*HealthCheck],
    )
    @given(case=cases(operation, target.known(operation.path)), is_operator=st.booleans())
    def send(case: Any, *, is_operator: bool) -> None:
        credential = {"authorization": f"Bearer {ADMIN}"} if is_operator else SOMEBODY
        response = case.call(target.url, session=target.session, headers=credential, timeout=WAIT_SECONDS)
        case.validate_response(response, checks=checks())

    send()
