"""Which segments make up a partition: leader-epoch lineage, history, and the ``__remote_log_metadata`` records.

What belongs here: deciding which offsets of which stored segments are the log (``lineage``, pure), asking a tier for
the checkpoints and snapshots that this needs (``history``), the metadata topic's record format. What does not: fetching
or decoding log bytes for a user (``remote.manager``), object layouts and stores (``remote.storage``).
"""
