"""The command ``tidemark mcp``: a server of the Model Context Protocol, before a running Tidemark.

``cli/main.py`` adds it. The tools are in ``integrations/mcp_server.py``, whose library takes long to load.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import click

from tidemark.cli.serve import bound
from tidemark.core.errors import ConfigError
from tidemark.terminal.http_client import server_options, server_url
from tidemark.terminal.options import example


@click.command(
    epilog=example("tidemark mcp", "tidemark mcp --port 8790"), short_help="Give agents tools for stored conversations."
)
@server_options
@click.option("--port", type=click.IntRange(1, 65_535), help="Serve over HTTP there; without it, standard input.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on, with --port.")
def mcp(config: Path | None, url: str | None, operator: bool, port: int | None, host: str) -> None:
    """Serve tools of the Model Context Protocol that search, read and compact stored conversations.

    On standard input it asks with OPENAI_API_KEY, or with --operator. Over HTTP each client's own key is passed on.
    """
    if find_spec("mcp") is None:
        raise ConfigError("The library 'mcp' is not installed. Install it: pip install 'tidemark-proxy[mcp]'.")
    if operator and port is not None:
        raise click.UsageError("--operator is for standard input: over HTTP, clients send their own credential.")
    if port is not None:
        for listener in bound(host, port):  # the library would end with a code and words of its own
            listener.close()
    from tidemark.integrations.mcp_server import run

    run({"url": url or server_url(config), "config": config, "operator": operator}, port=port, host=host)
