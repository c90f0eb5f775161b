"""States for every route of people which roles it serves, and what the audit log says of a request.

``server/guarding.py`` applies the rules. A route without a rule serves nobody; a test walks all routes with all roles.
Below ``/tidemark`` a tenant is whoever has no token of the operator's or an auditor's, with or without a key.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.core.events import Role
from tidemark.server.guarding import RouteRule

_OPERATOR: frozenset[Role] = frozenset({"operator"})
_READERS: frozenset[Role] = frozenset({"operator", "auditor"})
_OWNERS: frozenset[Role] = frozenset({"operator", "tenant"})
_TENANTS: frozenset[Role] = frozenset({"tenant"})
_ALL: frozenset[Role] = frozenset({"operator", "auditor", "tenant"})


def _reads(action: str, roles: frozenset[Role] = _OWNERS) -> RouteRule:
    return RouteRule(roles, action, reads=True)


def _names(action: str, subject: str = "") -> RouteRule:
    return RouteRule(_OPERATOR, action, by_handler=True, subject=subject)


_FIGURES, _OPEN, _OWNED, _MANAGED = map(RouteRule, (_READERS, _ALL, _OWNERS, _OPERATOR))
_API, _STORED = "/tidemark", "/tidemark/conversations/{id}"
_CONSOLE, _PAGE = "/console", "/console/conversations/{id}"
RULES: Mapping[str, RouteRule] = {
    f"GET {_API}/conversations": _reads("conversations.list"),
    f"POST {_API}/conversations/search": _reads("conversations.search"),
    f"POST {_API}/conversations/import": RouteRule(_OWNERS, "conversation.import"),
    f"GET {_STORED}": _reads("conversation.read"),
    f"GET {_STORED}/context": _reads("conversation.read"),
    f"GET {_STORED}/search": _reads("conversation.search"),
    f"GET {_STORED}/results/{{handle}}": _reads("conversation.read"),
    f"GET {_STORED}/export": RouteRule(_OWNERS, "conversation.export"),
    f"DELETE {_STORED}": RouteRule(_OWNERS, "conversation.forget"),
    f"GET {_STORED}/summaries": _reads("summary.read"),
    f"GET {_STORED}/receipts": _reads("receipts.read", _ALL),
    f"POST {_STORED}/summarize": RouteRule(_OWNERS, "summary.make"),
    f"POST {_STORED}/summaries": RouteRule(_OWNERS, "summary.change"),
    f"POST {_STORED}/summaries/preview": RouteRule(_OWNERS, "summary.preview"),
    f"GET {_API}/models": _OPEN,
    f"GET {_API}/models/{{model:path}}": _OPEN,
    f"PUT {_API}/models/{{model:path}}": RouteRule(_OPERATOR, "model.change", subject="model"),
    f"DELETE {_API}/models/{{model:path}}": RouteRule(_OPERATOR, "model.reset", subject="model"),
    f"GET {_API}/settings": _FIGURES,
    f"PUT {_API}/settings": _names("settings.change"),
    f"DELETE {_API}/settings": _names("settings.reset"),
    f"GET {_API}/events": _OPEN,
    f"GET {_API}/stats": _FIGURES,
    f"GET {_API}/gain": _FIGURES,
    f"GET {_API}/requests": _FIGURES,
    f"GET {_API}/audit": _FIGURES,
    f"DELETE {_API}/tenants/{{tenant}}": _names("tenant.forget", "tenant"),
    f"GET {_API}/tenants/{{tenant}}/export": RouteRule(_OPERATOR, "tenant.export", subject="tenant"),
    f"GET {_API}/keys": _MANAGED,
    f"POST {_API}/keys": _names("key.create"),
    f"GET {_API}/keys/{{id}}": _MANAGED,
    f"PATCH {_API}/keys/{{id}}": _names("key.change"),
    f"DELETE {_API}/keys/{{id}}": _names("key.revoke"),
    f"POST {_API}/keys/{{id}}/rotate": _names("key.rotate"),
    f"POST {_API}/count": _OWNED,
    f"POST {_API}/compact": _OWNED,
    f"GET {_CONSOLE}": _OPEN,
    f"GET {_CONSOLE}/events": _OPEN,
    f"GET {_CONSOLE}/conversations": _reads("conversations.list"),
    f"POST {_CONSOLE}/conversations": _reads("conversations.search"),
    f"GET {_PAGE}": _reads("conversation.read"),
    f"POST {_PAGE}/search": _reads("conversation.search"),
    f"POST {_PAGE}/summarize": RouteRule(_OWNERS, "summary.make"),
    f"GET {_PAGE}/export": RouteRule(_OWNERS, "conversation.export"),
    f"GET {_PAGE}/forget": _reads("conversation.read"),
    f"POST {_PAGE}/forget": RouteRule(_OWNERS, "conversation.forget"),
    f"GET {_PAGE}/summaries/regenerate": _reads("summary.read"),
    f"POST {_PAGE}/summaries/preview": RouteRule(_OWNERS, "summary.preview"),
    f"POST {_PAGE}/summaries/use": RouteRule(_OWNERS, "summary.change"),
    f"GET {_PAGE}/summaries/edit": _reads("summary.read"),
    f"POST {_PAGE}/summaries": RouteRule(_OWNERS, "summary.change"),
    f"GET {_CONSOLE}/own/export": RouteRule(_TENANTS, "tenant.export"),
    f"GET {_CONSOLE}/own/erase": RouteRule(_TENANTS),
    f"POST {_CONSOLE}/own/erase": RouteRule(_TENANTS, "tenant.forget"),
    f"GET {_CONSOLE}/models": _FIGURES,
    f"POST {_CONSOLE}/models": RouteRule(_OPERATOR, "model.change", subject="model"),
    f"GET {_CONSOLE}/settings": _FIGURES,
    f"POST {_CONSOLE}/settings": _names("settings.change"),
    f"GET {_CONSOLE}/requests": _reads("requests.list", _ALL),
    f"GET {_CONSOLE}/requests/{{request}}": RouteRule(_ALL, "conversation.read", reads=True, by_handler=True),
    f"GET {_CONSOLE}/audit": _FIGURES,
    f"GET {_CONSOLE}/keys": _MANAGED,
    f"POST {_CONSOLE}/keys": _names("key.create"),
    f"GET {_CONSOLE}/keys/{{id}}": _MANAGED,
    f"POST {_CONSOLE}/keys/{{id}}/rotate": _names("key.rotate"),
    f"POST {_CONSOLE}/keys/{{id}}/revoke": _names("key.revoke"),
    f"POST {_CONSOLE}/logout": RouteRule(_ALL, "sign-out", waits=False),
    f"GET {_CONSOLE}/{{path:path}}": _OPEN,
}
"""By method and path. The sign-in, its files and ``/`` serve everybody, and are no rows here."""
