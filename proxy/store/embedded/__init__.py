"""The store's server that comes along as a child process."""
