"""The configuration of a store's client: the ``store.*`` keys, and the environment's proxy.

What belongs here: the keys (``keys``), their meaning, and the one way to find the proxy of a host (``options``). What
does not: the storage manager's own keys (``remote.config``).
"""
