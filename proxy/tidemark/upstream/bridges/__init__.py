"""Bridges: answer a dialect that an upstream does not speak by asking it in chat completions (ADR 0018)."""
