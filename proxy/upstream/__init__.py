"""The way to the providers: where a model's requests go, and the two lanes that carry them.

Last step but one on the road of a request. Imports only the core.
"""
