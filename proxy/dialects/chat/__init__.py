"""The chat-completions dialect: its requests, replies and errors become the core's values and back."""
