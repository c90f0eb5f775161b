"""Sends requests to the providers, over one of two lanes.

It comes after the assembly and before the relay; the catalog is asked before it.
"""
