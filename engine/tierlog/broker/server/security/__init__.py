"""Who a client is, and which topics it may read: SASL, and the files of users and topics.

What belongs here: the exchange of SASL messages, credentials, rights. Why: what an attacker reaches
before it has said who it is stands in one place. What does not: how an API answers who may not, TLS, and sockets
(``tierlog.serving``).

No password is kept in memory, logged or quoted; a name that nobody has is answered as one that somebody has.
"""
