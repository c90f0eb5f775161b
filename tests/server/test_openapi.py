"""``/openapi.json`` describes every endpoint, as the routes, the sources and the pages have them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema
import pytest
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient

from tests.docs.pages import ROOT, cells, names_in
from tidemark.app.application import create_app
from tidemark.app.features import descriptions, feature_modules
from tidemark.config import load
from tidemark.config.stored import OVERRIDE_KINDS, STORED_KINDS
from tidemark.features.conversations.feature import SEARCH_MEMBERS
from tidemark.features.offline.service import COMPACT_MEMBERS
from tidemark.features.summaries.feature import CHANGE_MEMBERS, PREVIEW_MEMBERS, SUMMARIZE_MEMBERS
from tidemark.server.describing import Operation
from tidemark.server.endpoints.description import CONTROLS, OPERATIONS
from tidemark.server.openapi import EVERYWHERE, REPORT, document

SOURCES = ROOT / "proxy" / "tidemark"
WHATEVER = "/v1/{path}"
"""The path of all that is carried, which takes every method."""
HOW = "Add it to OPERATIONS in proxy/tidemark/features/FEATURE/description.py, or in server/endpoints/description.py."


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Starlette:
    """An application that nobody serves."""
    settings = load(None, {"HOME": str(tmp_path_factory.mktemp("home"))})
    return create_app(settings, store_url="redis://127.0.0.1:1", secret=b"s", warn=lambda _: None)


@pytest.fixture(scope="module")
def served(app: Starlette) -> dict[str, Any]:
    """The document, as a client without any credential gets it."""
    answer = TestClient(app, base_url="http://127.0.0.1").get("/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    whole: dict[str, Any] = answer.json()
    return whole


def all_operations() -> list[Operation]:
    """Those of the server and of every feature."""
    return [*OPERATIONS, *descriptions()]


def described() -> set[str]:
    """Methods and paths that have a description."""
    return {f"{operation.method} {operation.path}" for operation in all_operations()}


def test_every_route_is_described_and_nothing_else(app: Starlette) -> None:
    """Without the console, whose pages are for people; HEAD counts only where there is no GET of its own."""
    routes: dict[str, set[str]] = {}
    for route in app.routes:
        if isinstance(route, Route) and "/console" not in route.path:
            path = route.path.replace(":path", "")
            routes.setdefault(path, set()).update(route.methods or {"GET", "POST", "PUT", "PATCH", "DELETE"})
    heads = {("HEAD", "/"), ("HEAD", "/v1")}
    wanted = {
        f"{method} {path}"
        for path, methods in routes.items()
        for method in methods
        if method != "HEAD" or (method, path) in heads
    }
    assert sorted(wanted - described()) == [], f"these routes have no description. {HOW}"
    assert sorted(described() - wanted) == [], "these descriptions have no route: take them out"


def test_every_endpoint_is_described_once() -> None:
    """So no description hides another one."""
    names = [f"{operation.method} {operation.path}" for operation in all_operations()]
    assert sorted(names) == sorted(set(names))


def test_the_page_of_the_wire_lists_the_same_endpoints() -> None:
    """It tells of HEAD and of all that is carried in words."""
    in_words = {"HEAD /", "HEAD /v1"} | {f"{method} {WHATEVER}" for method in ("GET", "POST", "PUT", "PATCH", "DELETE")}
    assert names_in("docs/wire.md", "endpoint") == described() - in_words


def test_the_document_is_served_as_described(served: Mapping[str, Any]) -> None:
    """Byte for byte the same for everybody, and within the rules of OpenAPI."""
    assert served == json.loads(json.dumps(document(all_operations())))
    assert served["openapi"] == "3.1.1"


def test_every_shape_is_a_json_schema(served: Mapping[str, Any]) -> None:
    """Draft 2020-12, which OpenAPI 3.1 uses, and every reference leads somewhere."""
    references, shapes = [], 0
    for key, value in nodes(served):
        if key == "schema":
            jsonschema.Draft202012Validator.check_schema(value)
            shapes += 1
        if key == "$ref":
            references.append(value.removeprefix("#/components/").split("/"))
    assert shapes > 200
    assert all(name in served["components"][part] for part, name in references)


def nodes(value: Any) -> Iterator[tuple[str, Any]]:
    """Every member at any depth, with its name."""
    for key, member in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield str(key), member
        yield from nodes(member)


def test_parts_of_paths_are_parameters() -> None:
    """All of them, and each is required."""
    for operation in all_operations():
        names = [parameter.name for parameter in operation.parameters if parameter.place == "path"]
        assert names == re.findall(r"\{(\w+)\}", operation.path), operation.path
        assert all(parameter.required for parameter in operation.parameters if parameter.place == "path")


def test_a_request_of_a_model_has_all_controls(served: Mapping[str, Any]) -> None:
    """The headers that ``docs/wire.md`` lists, in requests and in answers."""
    controls = {parameter.name for parameter in CONTROLS} - {"Idempotency-Key"}
    assert controls == names_in("docs/wire.md", "header")
    for path in ("/v1/chat/completions", "/v1/responses", "/v1/messages"):
        operation = served["paths"][path]["post"]
        assert controls < {parameter["name"] for parameter in operation["parameters"]}
        assert set(operation["responses"]["200"]["headers"]) == set(REPORT)
    page = (ROOT / "docs/wire.md").read_text(encoding="utf-8")
    section = page.partition("## Response headers")[2].partition("## Errors")[0]
    assert set(re.findall(r"^\| `(X-Tidemark-[\w-]+)`", section, re.MULTILINE)) == set(REPORT)


def test_every_status_of_an_error_is_described() -> None:
    """What ``docs/wire.md`` lists: each by some operation at least, and no operation has another one."""
    listed = {int(status) for row in cells("docs/wire.md", "code") for status in row[1].split(", ")}
    stated = {*EVERYWHERE, 413, 415, 426}
    for operation in all_operations():
        stated |= set(operation.refusals)
    assert stated == listed - {405}, "405 is answered to methods that a path does not have"


QUERY = re.compile(r"""(?:query_params\.(?:get|getlist)\(|number_of\(request, )["'](\w+)["']""")


@pytest.mark.parametrize("feature", [name.split(".")[2] for name in feature_modules("feature")])
def test_every_member_of_a_query_that_a_feature_reads_is_described(feature: str) -> None:
    """By its own description, or that of the conversations whose pages it shows."""
    sources = [path.read_text(encoding="utf-8") for path in (SOURCES / "features" / feature).glob("*.py")]
    read = {name for source in sources for name in QUERY.findall(source)}
    has_description = (SOURCES / "features" / feature / "description.py").exists()
    assert has_description or not read, f"{feature} reads {read}. {HOW}"
    if has_description:
        operations = next(
            module.OPERATIONS for name, module in imported_descriptions().items() if name.split(".")[2] == feature
        )
        stated = {part.name for operation in operations for part in operation.parameters if part.place == "query"}
        assert sorted(read - stated) == [], f"in_query(...) is missing in features/{feature}/description.py"


def imported_descriptions() -> dict[str, Any]:
    """The modules of descriptions, by name."""
    from importlib import import_module

    return {name: import_module(name) for name in feature_modules("description")}


@pytest.mark.parametrize(
    ("operation", "names"),
    [
        ("POST /tidemark/conversations/search", SEARCH_MEMBERS),
        ("POST /tidemark/conversations/{id}/summarize", SUMMARIZE_MEMBERS),
        ("POST /tidemark/conversations/{id}/summaries", CHANGE_MEMBERS),
        ("POST /tidemark/conversations/{id}/summaries/preview", PREVIEW_MEMBERS),
        ("POST /tidemark/compact", COMPACT_MEMBERS),
        ("PUT /tidemark/settings", (*STORED_KINDS, "version")),
        ("PUT /tidemark/models/{model}", (*OVERRIDE_KINDS, "version")),
    ],
)
def test_a_body_has_the_members_that_are_read(
    served: Mapping[str, Any], operation: str, names: tuple[str, ...]
) -> None:
    """All others are refused, so a client may trust the document."""
    method, path = operation.split()
    shape = served["paths"][path][method.lower()]["requestBody"]["content"]["application/json"]["schema"]
    assert sorted(shape["properties"]) == sorted(names)
    assert shape["additionalProperties"] is False


def test_the_document_names_no_credential_and_no_model(served: Mapping[str, Any]) -> None:
    """So everybody may read it: it is the same for every configuration."""
    assert "os.environ" not in json.dumps(served)
    assert served == document(all_operations())


def test_errors_have_the_envelope_of_their_dialect(served: Mapping[str, Any]) -> None:
    """Anthropic's below its path, OpenAI's elsewhere, and either for the list of models."""
    envelopes = {
        path: {
            answer["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
            for operation in operations.values()
            for status, answer in operation["responses"].items()
            if status[0] in "45" and "content" in answer
        }
        for path, operations in served["paths"].items()
    }
    assert {path for path, names in envelopes.items() if names == {"AnthropicError"}} == {
        "/v1/messages",
        "/v1/messages/count_tokens",
    }
    assert {path for path, names in envelopes.items() if names == {"EitherError"}} == {"/v1/models"}
    assert envelopes["/metrics"] == {"OpenAIError"}
