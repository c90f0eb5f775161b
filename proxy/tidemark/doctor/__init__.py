"""Examines whether a configuration works on this machine: store, upstreams, clock, vocabularies and summarizer.

``tidemark doctor`` runs ``examination.examine`` and prints its findings, and ``tidemark check`` asks ``reach`` whether
addresses can be reached. Nothing else uses this package, and no request passes it. The findings are
facts; the command renders them.
"""
