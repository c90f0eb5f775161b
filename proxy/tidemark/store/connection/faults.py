"""Says what is wrong with a store and how to mend it, by the words of a failed call.

``node.py`` gives it to readiness, the log and refused clients, and ``tidemark doctor`` to its findings, so all say the
same. No sentence has a host or a credential.
"""

from __future__ import annotations

import re

from tidemark.core.frozen import frozen


@frozen
class Fault:
    """What is wrong, and its mend: a sentence each."""

    sentence: str
    mend: str

    def __str__(self) -> str:
        return f"{self.sentence} {self.mend}"


NAME_CERTIFICATE = "Name its files by ?ssl_certfile=FILE&ssl_keyfile=FILE in store.url."
"""How to mend that a server wants a client's certificate."""
CLOSED_AT_ONCE = "closed before its first answer"
"""Words of a connection with TLS whose server closed it after the handshake."""
NO_TLS = "no connection with TLS in time"
"""Words of a wait for a server that may speak none. Such a one waits for the rest of a command."""
_REFUSES = "The conversation store answers, and refuses to write"
_FAULTS: tuple[tuple[str, Fault], ...] = (
    (
        r"\bWRONGPASS\b|\bNOAUTH\b|invalid username-password|invalid password|Authentication required",
        Fault(
            "The conversation store does not accept the login.",
            "Correct user and password in store.url, percent-encoded, or give the server this user.",
        ),
    ),
    (
        r"Hostname mismatch|IP address mismatch|certificate is not valid for",
        Fault(
            "The certificate of the conversation store is for another name than store.url has.",
            "Name the server in store.url as its certificate does, or give it a certificate with this name.",
        ),
    ),
    (
        r"certificate has expired",
        Fault(
            "The certificate of the conversation store has expired.",
            "Renew it at the server; where it has not expired, correct the clock of this machine.",
        ),
    ),
    (
        r"CERTIFICATE_VERIFY_FAILED",
        Fault(
            "The certificate of the conversation store cannot be verified.",
            "Name the file of its CA by ?ssl_ca_certs=FILE in store.url, or renew the certificate if it has expired.",
        ),
    ),
    (
        r"(?i)alert.certificate.expired|alert.unknown.ca",
        Fault(
            "The conversation store does not accept the client's certificate.",
            "Name one that the CA of the server signed, and renew it if it has expired: ssl_certfile in store.url.",
        ),
    ),
    (
        r"(?i)certificate.required|bad.certificate",
        Fault(
            "The conversation store wants a client's certificate.",
            NAME_CERTIFICATE,
        ),
    ),
    (
        CLOSED_AT_ONCE,
        Fault(
            "The conversation store closes each connection, as one does that wants a client's certificate.",
            f"{NAME_CERTIFICATE} Where it wants none, look at its log.",
        ),
    ),
    (
        NO_TLS,
        Fault(
            "The conversation store gave no connection with TLS in time.",
            "Write redis:// in store.url if it speaks no TLS at this port; else look at its address and its log.",
        ),
    ),
    (
        r"WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE|PACKET_LENGTH_TOO_LONG",
        Fault(
            "The conversation store speaks no TLS at this port.",
            "Write redis:// in store.url, or name the port that speaks TLS.",
        ),
    ),
    (
        r"(?:^|[\s-])READONLY\b|read only replica",
        Fault(
            f"{_REFUSES}: it is a read-only replica.",
            "Name the primary in store.url, or the Sentinels that know it.",
        ),
    ),
    (
        r"(?:^|[\s-])OOM\b|used memory > 'maxmemory'",
        Fault(
            f"{_REFUSES}: it is full.",
            "Raise its maxmemory (embedded: store.max_mb). Then shorten store.ttl_days, or delete old conversations; "
            "while it is full, it cannot note who deleted them.",
        ),
    ),
    (
        r"(?:^|[\s-])MISCONF\b",
        Fault(f"{_REFUSES}: it cannot write to its disk.", "Free disk space for it, and look at its log."),
    ),
    (
        r"(?:^|[\s-])NOREPLICAS\b",
        Fault(
            f"{_REFUSES}: too few replicas follow it.",
            "Start its replicas, or lower its min-replicas-to-write or store.wait_replicas.",
        ),
    ),
    (
        r"(?:^|[\s-])NOPERM\b|ACL failure in script|has no permissions",
        Fault(
            f"{_REFUSES}: its user has not all rights.",
            "Give the user of store.url all rights on its keys: ACL SETUSER NAME ~tm:* +@all (docs/operations.md).",
        ),
    ),
    (
        r"CLUSTERDOWN|has slot \d|knows of no slots",
        Fault(
            "The cluster does not serve every slot.",
            "Give every slot a primary that is up: valkey-cli --cluster check, then --cluster fix.",
        ),
    ),
    (
        r"(?:^|[\s-])LOADING\b|loading the dataset",
        Fault("The conversation store still reads its data.", "Wait until it has; its log says how far it is."),
    ),
)
_PATTERNS = [(re.compile(pattern), fault) for pattern, fault in _FAULTS]


def fault_of(words: str) -> Fault | None:
    """Return what an error means, and its mend; None if its words say nothing of it.

    :param words: those of the server, the network or TLS, with which the call failed
    """
    return next((fault for pattern, fault in _PATTERNS if pattern.search(words)), None)


def words_within(error: BaseException) -> str:
    """Return the words of an error and of what caused it: clients wrap what TLS and the network said."""
    words: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(words) < 8:
        words.append(str(cause))
        cause = cause.__cause__ or cause.__context__
    return "\n".join(words)
