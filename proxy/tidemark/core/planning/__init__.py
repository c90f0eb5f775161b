"""Decides what to do with a request: budget, plan, clipping, assembly."""
