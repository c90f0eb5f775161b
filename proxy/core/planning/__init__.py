"""The decision what becomes of a request: budget, plan, clipping, assembly."""
