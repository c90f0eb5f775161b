"""Encryption at rest: master keys, a key for each tenant, and the cipher that the codec uses."""
