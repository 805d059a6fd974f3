"""The remote log index that an older page of KIP-405 describes: which records of a partition are in the tier, in files
beside its log.

What belongs here: those files written, looked up, checked and made again after a crash. What does not: the bytes of an
entry (``log.formats.remote_log_index_entry``), and ``__remote_log_metadata``, which Kafka uses instead
(``remote.metadata``).
"""
