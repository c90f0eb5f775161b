"""Imports litellm once, in a thread, and offers the few things that Tidemark uses of it.

The import takes 4 to 8 s of CPU and some 200 MB. ``upstream.py`` asks litellm for a model's provider, and the translate
lane sends requests through ``complete``. No other module imports it. Its HTTP clients send nothing twice, keep no
cookies, follow no redirects and send no organization but the caller's.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import threading
import warnings
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import datetime
from functools import cache, wraps
from http.cookiejar import DefaultCookiePolicy
from inspect import iscoroutinefunction, unwrap
from typing import Any, NoReturn

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.errors import UpstreamError
from tidemark.upstream import providers

RESEND_METHOD = "single_connection_post_request"
"""litellm's method that sends again; its handlers call it while they handle the first error."""
SWITCH_SECONDS = 0.0005
"""How long the import may keep the interpreter from a request. Python's own 5 ms add up, because a request often waits
for something and then wants it again."""
SERVER_LOGGERS = ("asyncio", "uvicorn", "uvicorn.access", "uvicorn.asgi", "uvicorn.error")
"""Loggers that litellm adds filters to, and that must stay as they are."""
AROUND_CALLS = (
    "callbacks",
    "input_callback",
    "success_callback",
    "failure_callback",
    "pre_call_rules",
    "post_call_rules",
)
"""litellm's lists of what is called around a request. Tidemark fills none of them; who embeds it, or an entry, may."""
OWN_CALLBACK = "cache"
"""What litellm registers by itself at the first request to Google. It does nothing for a process without its cache."""
BY_WHOLE_CALLS = frozenset({*AROUND_CALLS, "caching", "complete_response", "context_window_fallback_dict"})
"""The parameters of an entry that only a whole call of litellm reads."""
START = "__aiter__"
"""The method that begins to read a stream."""
NO_DATA = ("event:", ":", "id:", "retry:")
"""What the lines of an event stream begin with that have no data."""
EXTRA_OF_CHOICES = ("delta", "finish_reason", "index", "logprobs")
EXTRA_OF_CHUNKS = (
    "citations",
    "usage",
    "vertex_ai_citation_metadata",
    "vertex_ai_grounding_metadata",
    "vertex_ai_safety_ratings",
    "vertex_ai_safety_results",
    "vertex_ai_url_context_metadata",
)
"""Members that litellm assigns several times for each chunk of a stream, and does not declare in its models."""
LOGGING = (
    "pre_call",
    "post_call",
    "success_handler",
    "async_success_handler",
    "dispatch_success_handlers",
    "failure_handler",
    "async_failure_handler",
    "dispatch_failure_handlers",
    "_response_cost_calculator",
)
"""The methods of a log of litellm that log or price, and change no answer."""
NO_COOKIES = DefaultCookiePolicy(allowed_domains=())
NAMED = ("openai-organization", "openai-project")


def send_once(handler: type) -> None:
    """Make a handler class of litellm raise the first error, instead of sending a second time.

    litellm 1.105.3 sends a POST again, over a new connection and without a time limit, whenever the server closes
    without an answer (``llms/custom_httpx/http_handler.py``). The server may already have worked on the first request
    and bills it (RFC 9110, 9.2.2). The second answer of a stream could not be read anyway, because litellm closes its
    connection.

    :raises AttributeError: this version of litellm has no such method
    """
    getattr(handler, RESEND_METHOD)  # fails at once if a newer litellm has renamed it

    async def raise_first_error(_handler: Any, *_: Any, **__: Any) -> NoReturn:
        raise sys.exc_info()[1] or ConnectionError("litellm sends a request again for no error")

    setattr(handler, RESEND_METHOD, raise_first_error)


def read_data_lines(iterator: type) -> None:
    """Let a class of litellm, which reads the lines of an event stream, read those with data only.

    litellm makes an empty chunk of every other line, takes it through all its steps and then drops it: two of three
    lines of Anthropic's streams are no data. A quarter of the calls of a stream go with them.

    :raises KeyError: this version of litellm has no such method
    """
    start = iterator.__dict__[START]  # fails at once if a newer litellm has renamed it

    def start_with_data(self: Any) -> Any:
        started = start(self)
        started.async_response_iterator = _data_lines(started.async_response_iterator)
        return started

    setattr(iterator, START, start_with_data)


async def _data_lines(lines: AsyncIterator[str | bytes]) -> AsyncIterator[str | bytes]:
    """Yield the lines of an event stream but for those that have no data (HTML standard, "Server-sent events")."""
    async for line in lines:
        if not (isinstance(line, str) and (not line or line.startswith(NO_DATA))):
            yield line


def assign_extra_at_once(model: Any, names: Collection[str]) -> None:
    """Let a model of pydantic take undeclared members as it does, without a search for what they may be.

    pydantic remembers what an assignment does to a declared member, and for others looks at the class again each time:
    thirty times for a chunk, a fifth of the CPU of a stream.

    :raises TypeError: this version of litellm or pydantic has another kind of member by one of the names
    """
    for name in names:
        if name in model.model_fields or hasattr(model, name) or model.model_config.get("extra") != "allow":
            raise TypeError(f"{model.__name__}.{name} is no undeclared member")
        model.__pydantic_setattr_handlers__[name] = _assign_extra


def _assign_extra(model: Any, name: str, value: object) -> None:
    model.__pydantic_extra__[name] = value
    model.__pydantic_fields_set__.add(name)


async def find_provider(model: str, params: Mapping[str, JsonValue]) -> tuple[str, str, str | None]:
    """Return the bare model, its provider and its base URL, as litellm knows them.

    litellm is asked in a thread, because it reads files for some providers. It also returns a key from the server's
    environment, which is ignored.

    :raises LookupError: litellm knows no provider for the model
    """
    module = await _module()
    base = params.get("api_base") or params.get("base_url")
    try:
        bare_model, provider, _key, litellm_base = await asyncio.to_thread(
            module.get_llm_provider,
            model=model,
            custom_llm_provider=params.get("custom_llm_provider"),
            api_base=base,
        )
    except module.exceptions.BadRequestError as error:
        raise LookupError(model) from error
    return bare_model, provider, str(base) if base else providers.DEFAULT_BASES.get(provider) or litellm_base


async def openai_compatible_providers() -> Collection[str]:
    """Return the providers that litellm lists as compatible with OpenAI's format."""
    compatible: Collection[str] = (await _module()).openai_compatible_providers
    return compatible


async def complete(**fields: Any) -> Any:
    """Call ``litellm.acompletion``, as soon as it is imported.

    Around each call litellm prepares, prices and dispatches a log for callbacks, which takes a third of the CPU of a
    whole answer. A call that needs nothing of this gets a log that does nothing.
    """
    module = await _module()
    if _needs_whole_call(module, fields):
        return await module.acompletion(**fields)
    completion, log_class = _quiet_parts(module)
    model = fields["model"]
    log = log_class(
        model=model,
        messages=fields["messages"],
        stream=fields["stream"],
        call_type="acompletion",
        start_time=datetime.now(),  # noqa: DTZ005 - litellm subtracts it from times without a zone
        litellm_call_id="",
        function_id="",
    )
    options = fields.get("stream_options")  # a stream asks its log whether the client wants its usage
    log.update_environment_variables(
        model=model, user="", optional_params={}, litellm_params={"api_base": ""}, stream_options=options
    )
    return await completion(**fields, litellm_logging_obj=log)


def _needs_whole_call(module: Any, fields: Mapping[str, Any]) -> bool:
    """Return whether somebody has set up what only the whole call does: callbacks, rules, a cache or a fallback."""
    return (
        module.cache is not None
        or any(callback != OWN_CALLBACK for name in AROUND_CALLS for callback in getattr(module, name))
        or not BY_WHOLE_CALLS.isdisjoint(fields)
    )


@cache
def _quiet_parts(module: Any) -> tuple[Any, Any]:
    """Return litellm's ``acompletion`` without what it does around a call, and the class of a quiet log."""
    return unwrap(module.acompletion), quiet_log(module.litellm_core_utils.litellm_logging.Logging)


def quiet_log(log: type) -> type:
    """Return a class of litellm's logs that notes what a call needs, and neither logs nor prices.

    :raises AttributeError: this version of litellm has no such method
    """

    def nothing(*_: Any, **__: Any) -> None:
        return None

    async def nothing_later(*_: Any, **__: Any) -> None:
        return None

    methods = {name: nothing_later if iscoroutinefunction(getattr(log, name)) else nothing for name in LOGGING}
    return type("QuietLog", (log,), methods)


async def call(name: str, **fields: Any) -> Any:
    """Call one of litellm's functions, as soon as it is imported."""
    return await getattr(await _module(), name)(**fields)


async def aclose() -> None:
    """Close the connections of litellm's clients, if it is imported; each belongs to the event loop that made it."""
    if _loading is None or not _loading.done() or _loading.exception() is not None:
        return
    clients = _loading.result().in_memory_llm_clients_cache.cache_dict
    own = f"-{id(asyncio.get_running_loop())}"
    for key in [key for key in clients if key.endswith(own)]:
        await clients.pop(key).close()


_lock = threading.Lock()
_loading: Future[Any] | None = None


def load() -> Future[Any]:
    """Return litellm as soon as it is imported; the first call starts the import.

    It is imported in a daemon thread, so that a process that ends meanwhile need not wait for it.
    """
    global _loading  # noqa: PLW0603  an import is global to the process, too
    with _lock:
        if _loading is None:
            _loading = Future()
            _loading.set_running_or_notify_cancel()
            threading.Thread(target=_import, args=(_loading,), name="import-litellm", daemon=True).start()
    return _loading


async def _module() -> Any:
    try:
        return await asyncio.shield(asyncio.wrap_future(load()))
    except ImportError as error:
        raise UpstreamError("litellm cannot be imported; see the log.", internal=repr(error)) from error


@contextmanager
def _filters_kept_off_server_loggers() -> Iterator[None]:
    """Keep litellm's filters off uvicorn's loggers.

    litellm adds them when its import begins, and they work only after its end: any line that the server logs
    meanwhile would fail, also during its shutdown. Our own logging already masks keys in every line.
    """
    loggers = [logging.getLogger(name) for name in SERVER_LOGGERS]
    for logger in loggers:
        setattr(logger, "addFilter", lambda _: None)  # noqa: B010 - mypy refuses to shadow a method in the open
    try:
        yield
    finally:
        for logger in loggers:
            del logger.addFilter  # restores the method of the class


@contextmanager
def _requests_first() -> Iterator[None]:
    """Let requests that come during the import wait little.

    A full garbage collection during the import stops all threads for 0.2 s and finds nothing, because modules are
    never freed. So there is no collection meanwhile, and later ones pass these objects by.
    """
    interval, collects = sys.getswitchinterval(), gc.isenabled()
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collects:
            gc.enable()
        sys.setswitchinterval(interval)


def _import(loading: Future[Any]) -> None:
    try:
        # Without the first variable, the import asks the network for a newer price list. Without the second, it
        # reads the .env of the working folder into this process's environment.
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        os.environ.setdefault("LITELLM_MODE", "PRODUCTION")
        with warnings.catch_warnings(), _filters_kept_off_server_loggers(), _requests_first():
            warnings.simplefilter("ignore")  # pydantic warns of litellm's own models
            import litellm

            # litellm builds these types at first use, with warnings of the same kind.
            litellm.ModelResponse()
            litellm.ModelResponseStream()
        litellm.suppress_debug_info = True  # or it prints advertisements to stdout
        litellm.disable_streaming_logging = True
        # litellm's aiohttp transport leaves sessions open at exit and does not support SOCKS proxies. Its exception
        # mapping was written for httpx, which respx can replace in tests.
        litellm.disable_aiohttp_transport = True
        send_once(litellm.llms.custom_httpx.http_handler.AsyncHTTPHandler)
        _quiet_parts(litellm)  # fails at once if a newer litellm has renamed one
        from litellm.llms.anthropic.chat import handler as anthropic

        read_data_lines(anthropic.ModelResponseIterator)
        assign_extra_at_once(litellm.types.utils.StreamingChoices, EXTRA_OF_CHOICES)
        assign_extra_at_once(litellm.ModelResponseStream, EXTRA_OF_CHUNKS)
        make_strict(litellm.llms.custom_httpx.http_handler.AsyncHTTPHandler, "create_client")
        make_strict(litellm.llms.openai.common_utils.BaseOpenAILLM, "_get_async_http_client")
        # Its errors reach us as exceptions; its log lines would quote request contents.
        logging.getLogger("LiteLLM").setLevel(logging.CRITICAL)
        loading.set_result(litellm)
    except BaseException as error:  # noqa: BLE001  every caller that waits for the import must get the error
        loading.set_exception(error if isinstance(error, ImportError) else ImportError(repr(error)))


async def _without_empty(request: Any) -> None:
    """Leave out an organization and a project that ``headers.py`` has made empty."""
    for name in NAMED:
        if request.headers.get(name) == "":
            del request.headers[name]


def make_strict(owner: type, factory: str) -> None:
    """Change a method of litellm that makes an asynchronous client of httpx.

    litellm shares a client between callers. httpx would send one caller's cookies with the requests of all others, and
    after a redirect prompts, and keys of other headers than ``Authorization``, to an address that nobody configured.
    OpenAI's SDK would send the organization of the environment with a caller's own key.

    :raises KeyError: this version of litellm has no such method
    """
    defined = owner.__dict__[factory]  # fails at once if a newer litellm has renamed it
    make = getattr(owner, factory)

    @wraps(make)
    def make_client(*places: Any, **options: Any) -> Any:
        client = make(*places, **options)
        if client is not None:
            client.cookies.jar.set_policy(NO_COOKIES)
            client.follow_redirects = False
            client.event_hooks["request"].append(_without_empty)
        return client

    setattr(owner, factory, staticmethod(make_client) if isinstance(defined, staticmethod) else make_client)
