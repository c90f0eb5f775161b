"""Work that is done in threads beside the event loop."""
