"""A small HTTP/1.1 client over llhttp. It stands in for aiohttp, for every upstream that is reached without a proxy.

The wire lane (``tidemark/upstream/wire.py``) sends its requests through ``pool``. ``target`` reads URLs and writes
request heads, ``opening`` makes connections, ``connection`` carries one exchange at a time, ``answer`` parses what
comes back.

It saves 404,000 of the 1,467,000 instructions that a small request takes with aiohttp, 28 %. It bounds heads, trailers
and buffered bodies, and gives every exchange a parser of its own. ``transport.upstream: library`` uses aiohttp instead
(``docs/adr/0012-an-http-client-of-our-own.md``).
"""
