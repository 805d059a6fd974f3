"""The ``store.*`` keys.

What belongs here: which there are (``keys``), and what they say to a store's client (``options``). What does not: the
storage manager's own keys (``remote.storage.config``).
"""
