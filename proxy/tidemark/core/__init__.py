"""The pure core: values and rules, with no clock, no I/O, no asyncio and no third-party library.

Every other package imports this one; it imports only the standard library.
"""
