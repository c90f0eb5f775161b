"""Ends listening without resetting a client that connects in that moment."""

from __future__ import annotations

import ctypes
import socket
import struct
import sys
from contextlib import suppress

ATTACH_FILTER = 26  # SO_ATTACH_FILTER of Linux; the socket module does not name it
_FLAGS_OFFSET, _SYN = 13, 0x02  # RFC 9293, section 3.1: the octet of the flags in the header of TCP, and the flag
_STEPS = (  # (code, steps to skip if true, if false, operand) of linux/filter.h
    (0x30, 0, 0, _FLAGS_OFFSET),  # load an octet
    (0x45, 0, 1, _SYN),  # if the flag is set
    (0x06, 0, 0, 0),  # keep nothing of the packet
    (0x06, 0, 0, 0xFFFF_FFFF),  # else keep all
)


def end_listening(listener: socket.socket) -> None:
    """Let nobody begin to connect any more; whoever has begun can still be accepted.

    A socket that closes resets the clients that it has not accepted. With this filter on Linux, a client that comes
    between the last accept and the close is not answered. It asks again after a second, and is refused.

    The filter stays with the socket for good, in every process that has it. Other systems have no such filter.
    """
    if not sys.platform.startswith("linux"):
        return
    steps = b"".join(struct.pack("HBBI", *step) for step in _STEPS)
    memory = ctypes.create_string_buffer(steps, len(steps))
    program = struct.pack("HP", len(_STEPS), ctypes.addressof(memory))
    with suppress(OSError):  # a sandbox may forbid filters
        listener.setsockopt(socket.SOL_SOCKET, ATTACH_FILTER, program)
