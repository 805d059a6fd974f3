"""The segments that make up a partition: leader-epoch lineage, and the ``__remote_log_metadata`` topic.

What belongs here: deciding which offsets of which stored segments are the log (``lineage``, pure); the metadata topic's
records (``record_serde``, ``record_text``) and its reads (``metadata_log``); the table of segments that its events make
up, in the KIP's values (``segment_table``); the metadata that a reader asks for once (``metadata_source``).

What does not: asking a tier for the checkpoints and snapshots that this needs, and decoding log bytes for a user
(``tierlog.scan``), object layouts and stores (``remote.tier``).
"""
