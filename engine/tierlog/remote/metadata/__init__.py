"""Which segments make up a partition: leader-epoch lineage, and the ``__remote_log_metadata`` records.

What belongs here: deciding which offsets of which stored segments are the log (``lineage``, pure), and the metadata
topic's record format. What does not: asking a tier for the checkpoints and snapshots that this needs, and decoding log
bytes for a user (``tierlog.scan``), object layouts and stores (``remote.tier``).
"""
