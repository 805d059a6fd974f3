"""Kafka's requests and responses: bytes to values and back.

What belongs here: frames, headers, the versions of each API, error codes, and the encoder of Fetch responses. Why:
the other rooms see values alone. What does not: sockets, and what is answered.

Types are those of kio, one module an API and version; ``entities`` makes them without naming a version. Bytes are
``decoding``'s and ``encoding``'s: kio's decoder ends the process when a count lies, and its encoder is slow.
"""
