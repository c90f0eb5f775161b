"""The connection to the store: address, client, timeouts and outages.

Below the adapter (``tidemark/store/commands.py``). ``client`` chooses what carries commands: ``pipelined`` stands in
for redis-py at a plain address and saves 39 % of a small request's instructions
(``docs/adr/0008-a-line-to-the-store.md``). ``transport.store: library`` uses redis-py instead. ``outage`` handles a
server that is away, and ``node`` has all that one server needs: its calls, each bounded in time
(``docs/adr/0016-timeouts-of-the-store.md``), and the probes of its return. ``cluster`` and ``topology`` send each
command to its server of a cluster, by what ``slots`` reads (``docs/adr/0024-a-slot-on-its-way.md``). ``sentinel``
follows the primary that Sentinels name.
"""
