"""`tidemark demo`: one real conversation held twice with a real small model, straight and through Tidemark.

`run.py` drives it, `script.py` is the person, `talk.py` the client, `screen.py` the facts and their
rendering, `llama.py` the model's server and `children.py` the two processes. Nothing here is imported by
the proxy itself.
"""
