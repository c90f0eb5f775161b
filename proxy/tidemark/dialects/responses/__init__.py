"""OpenAI's Responses API as a dialect (``dialect.py``): requests, replies, streams, errors and answers of our own."""
