"""The ``tidemark`` command: one file for each group of subcommands."""
