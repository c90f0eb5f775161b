"""The names of spans' attributes, and the values of some, by OpenTelemetry's semantic conventions.

The other modules here use them. Sources: "Semantic conventions for generative client AI spans", for HTTP spans and for
database spans. Other names begin with ``tidemark.``.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from opentelemetry.util.types import AttributeValue

from tidemark.core.ports import Route

Attributes = Mapping[str, AttributeValue]

ERROR_TYPE = "error.type"
OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
CONVERSATION = "gen_ai.conversation.id"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
METHOD = "http.request.method"
STATUS = "http.response.status_code"
ROUTE = "http.route"

CHAT = "chat"
OPERATIONS: Mapping[str, str] = {"/completions": "text_completion", "/embeddings": "embeddings"}
"""By the path below the base URL of a request that is only carried."""
PROVIDERS: Mapping[str, str] = {
    "azure": "azure.ai.openai",
    "azure_ai": "azure.ai.inference",
    "bedrock": "aws.bedrock",
    "bedrock_converse": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "vertex_ai": "gcp.vertex_ai",
    "watsonx": "ibm.watsonx.ai",
    "xai": "x_ai",
}
"""LiteLLM's names of providers whose well-known name is another one."""
METHODS = frozenset({"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"})
OTHER_METHOD = "_OTHER"
"""Stands for every other method, which clients make up (HTTP spans, ``http.request.method``)."""


def route_attributes(route: Route, operation: str | None) -> dict[str, AttributeValue]:
    """Return the attributes of a call to a route's upstream.

    :param operation: what the upstream is asked for; None if the conventions have no name for it
    """
    attributes: dict[str, AttributeValue] = {
        PROVIDER: PROVIDERS.get(route.provider, route.provider),
        REQUEST_MODEL: route.upstream_model,
    }
    if operation is not None:
        attributes[OPERATION] = operation
    place = urlsplit(route.base_url)
    if place.hostname:
        attributes["server.address"] = place.hostname
        attributes["server.port"] = place.port or (80 if place.scheme == "http" else 443)
    return attributes


def method_of(method: str) -> str:
    """Return a request's method as spans name it."""
    return method if method in METHODS else OTHER_METHOD
