"""Grounding: tells whether a statement has a support in a text, by its values and its negations.

``summarizers/narrative.py`` holds a model's narrative against the conversation with it, before anything is stored.
"""
