"""Writing to S3 and what speaks like it.

What belongs here: addresses, signed requests, uploads in parts, the probe of what the server does. What does not:
sending them (``stores.writing``), reading (``stores.reading``).
"""
