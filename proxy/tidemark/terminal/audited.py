"""Appends to the audit log what a command reads or changes, before it does so.

A command works on the store itself, so it names who runs it; nobody is asked for a token.
"""

from __future__ import annotations

import getpass
import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidemark.config import Settings
    from tidemark.store.commands import Ask


async def audit(ask: Ask, settings: Settings, action: str, subject: str = "", tenant: str = "") -> None:
    """Append an entry.

    :raises StoreUnavailable: the log did not take it, so the command may not go on
    """
    from tidemark.config.signing import secret_of
    from tidemark.core.events import Audited
    from tidemark.store.audit_log import AuditLog

    log = AuditLog(ask, secret_of(settings), worker=f"command-{os.getpid()}", clock=time.time)
    await log.append(Audited(action, "operator", f"command of {_user()}", tenant, subject))


def _user() -> str:
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):  # a container may run under a number that has no name
        return str(os.getuid()) if hasattr(os, "getuid") else "unknown"
