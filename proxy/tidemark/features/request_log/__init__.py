"""The log of requests: a few facts about each of the newest ones, for the console and the API."""
