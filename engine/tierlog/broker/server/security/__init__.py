"""Who a client is, and that nobody listens: TLS, SASL, and the file of users.

What belongs here: the exchange of SASL messages, credentials, certificates. Why: what an attacker reaches before she
has said who she is stands in one place. What does not: what a principal may do, and sockets.

No password is kept in memory, logged or quoted; a name that nobody has is answered as one that somebody has.
"""
