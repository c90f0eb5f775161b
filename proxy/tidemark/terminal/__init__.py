"""What the commands share: options, tables, progress, and a client of the running server."""
