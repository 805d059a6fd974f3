"""Writing to S3 and stores of its protocol.

What belongs here: addresses, signed requests, uploads in parts, the probe of the server's features. What does not:
sending them (``stores.writing``), reading (``stores.reading``).
"""
