"""The values of a conversation: messages, prefix chain, summaries, stored records."""
