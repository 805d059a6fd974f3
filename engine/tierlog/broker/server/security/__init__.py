"""The identity of a client, and its rights to read topics: SASL, and the files of users and topics.

What belongs here: the exchange of SASL messages, credentials, rights. Why: code that an attacker reaches before
authentication is in one place. What does not: an API's answers to clients without rights, TLS, and sockets
(``tierlog.serving``).

No password is held in memory, logged or quoted; an unknown name is answered like a known one.
"""
