"""Stored responses and the Conversations API of OpenAI: read, listed, cancelled and deleted."""
