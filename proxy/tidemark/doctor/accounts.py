"""Tells which providers' accounts several tenants were seen to use by a configured key (``auth.shared_account``)."""

from __future__ import annotations

from collections import Counter

from tidemark.doctor.findings import Finding
from tidemark.store import keys
from tidemark.store.connection.client import FAILURES, StoreClient

CHECK = "account"
_MEND = (
    "Set auth.shared_account to false, so that each tenant reaches only what Tidemark saw it make; or true, if all of "
    "them may see the rest of the account."
)


async def check_accounts(client: StoreClient, *, is_stated: bool) -> list[Finding]:
    """Tell of each account in which several credentials have made something.

    :param is_stated: whether the configuration says that they share it; else it is a warning
    """
    try:
        fields = await client.call("HKEYS", keys.ACCOUNTS)
    except FAILURES:
        return []  # a key of another server of the cluster; the check of the store tells of anything else
    tenants = Counter(field.decode().partition(" ")[2] for field in fields)
    return [
        Finding(
            CHECK,
            "ok" if is_stated else "warning",
            f"{count} credentials have made something in the one account of {account}, and each of them may list the "
            "account and reach what Tidemark did not see made",
            "" if is_stated else _MEND,
        )
        for account, count in sorted(tenants.items())
        if count > 1
    ]
