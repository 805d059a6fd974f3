"""Who a client is, which topics it may read, and that nobody listens: TLS, SASL, and the files of users and topics.

What belongs here: the exchange of SASL messages, credentials, certificates, rights. Why: what an attacker reaches
before she has said who she is stands in one place. What does not: how an API answers who may not, and sockets.

No password is kept in memory, logged or quoted; a name that nobody has is answered as one that somebody has.
"""
