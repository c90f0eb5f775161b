"""The pure core: values and rules, no clock, no I/O, no asyncio, no third party.

Every room above imports this one; it imports nothing but the standard library's value types.
"""
