"""A lean HTTP/1.1 client over llhttp, for the servers that the wire lane reaches without a proxy.

Beneath ``proxy/upstream/wire.py``. A request is one write, its answer is parsed where it arrives, and what is the
same for every request is made once. ``target`` knows URLs and heads, ``opening`` makes connections, ``connection``
carries one exchange at a time, ``answer`` is what it hands out, ``pool`` keeps the idle ones.
"""
