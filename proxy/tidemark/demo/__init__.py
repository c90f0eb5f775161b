"""Runs `tidemark demo`: the same conversation with a real small model, directly and through Tidemark.

`run.py` drives it, `talk.py` is the client, `screen.py` renders the results, `llama.py` is the model's server and
`children.py` runs the two processes. The proxy itself imports nothing from here.
"""
