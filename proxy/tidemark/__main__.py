"""``python -m tidemark``: the same as the ``tidemark`` command."""

from tidemark.cli.main import main

if __name__ == "__main__":  # worker processes import this file under another name
    main()
