"""The embedded store: a Valkey server that the command runs as a child process."""
