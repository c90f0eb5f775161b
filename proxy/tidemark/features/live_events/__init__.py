"""Live events: what happens to conversations, as a stream to listeners and by a webhook."""
