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
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from functools import wraps
from http.cookiejar import DefaultCookiePolicy
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
    """Call ``litellm.acompletion``, as soon as it is imported."""
    return await (await _module()).acompletion(**fields)


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
