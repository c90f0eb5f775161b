"""The connection to the store: address, client, timeouts and outages."""
