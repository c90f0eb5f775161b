"""The way to the providers: where a model's requests go, and the two lanes that carry them.

On the road of a request between the assembly and the relay; the catalog is asked before. Imports only the core.
"""
