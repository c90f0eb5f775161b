"""Serves clients over HTTP: it reads requests, calls the pipeline or the archive, and sends responses."""
