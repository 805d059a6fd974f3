"""Kafka's files on a broker's disk.

Rooms: ``formats`` (each file beside the ``.log``, parsed and written) and ``checks`` (whether those files agree with
the log). The living log (segments that grow, recovery, retention) gets a room beside them.

Belongs here: what follows from a partition's files alone. Does not belong here: opening a store, deciding which
segments of a tier count (``remote.metadata``), or anything that a user reads (``cli``).
"""
