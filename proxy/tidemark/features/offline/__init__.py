"""Counts and compacts single requests, without a conversation that is stored."""
