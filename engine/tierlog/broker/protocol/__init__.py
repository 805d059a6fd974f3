"""Kafka's requests and responses: bytes to values and back.

What belongs here: frames, headers, the versions of each API, error codes, and the encoder of Fetch responses. Why: the
other rooms see values alone. What does not: sockets, and the content of answers.

Types are those of kio, one module an API and version; ``entities`` makes them without naming a version. kio's
decoder ends the process when a count lies: it gets what ``skimming`` found regular, ``decoding`` the rest. Its encoder
is slow: ``encoding`` is ours.
"""
