"""Serves clients over HTTP: it reads requests, calls the pipeline, and sends responses."""
