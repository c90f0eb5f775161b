"""``python -m proxy``: the same as the ``tidemark`` command."""

from proxy.cli import main

main()
