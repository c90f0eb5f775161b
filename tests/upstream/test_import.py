"""What importing the upstream package, and litellm with it, does to the process."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import logging
from concurrent.futures import wait
from tidemark.upstream.litellm import SERVER_LOGGERS, load
loading = load()
while not loading.done():
    for name in SERVER_LOGGERS:
        logging.getLogger(name).warning("still serving")
    wait([loading], 0.0005)  # the import is what takes the time
loading.result()
print([name for name in SERVER_LOGGERS if logging.getLogger(name).filters])
logging.getLogger("uvicorn.error").addFilter(lambda _: True)
print(len(logging.getLogger("uvicorn.error").filters))
"""


def test_the_server_can_log_while_litellm_is_being_imported() -> None:
    """Its filters need the end of the import; on the server's loggers they made every line fail, and the shutdown."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split("\n")[:2] == ["[]", "1"]
    assert "Traceback" not in done.stderr


PRIORITY_CODE = """
import gc, pathlib, sys, tempfile
folder = pathlib.Path(tempfile.mkdtemp())
(folder / "litellm.py").write_text("import gc, sys; print(gc.isenabled(), sys.getswitchinterval()); raise ImportError")
sys.path.insert(0, str(folder))
from tidemark.upstream.litellm import load
frozen = gc.get_freeze_count()
try:
    load().result()
except ImportError:
    print(gc.isenabled(), sys.getswitchinterval(), gc.get_freeze_count() > frozen)
"""


def test_requests_come_before_the_import_of_litellm() -> None:
    """Full collections and long turns of its thread each held up a request of the first seconds; both end with it."""
    done = subprocess.run(
        [sys.executable, "-c", PRIORITY_CODE], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.stdout == "False 0.0005\nTrue 0.005 True\n", done.stderr[-2000:]


def test_without_a_proxy_aiohttp_is_not_imported() -> None:
    """The wire lane has a client of its own."""
    code = "import sys, tidemark.upstream.upstream; print('aiohttp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout == "False\n", done.stderr[-2000:]
