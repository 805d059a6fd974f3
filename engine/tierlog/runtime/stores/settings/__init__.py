"""What is said to a store's client: the ``store.*`` keys, and the environment's proxy.

What belongs here: which keys there are (``keys``), what they say, and the one way to find the proxy of a host
(``options``). What does not: the storage manager's own keys (``remote.config``).
"""
