"""The RemoteLogManager: it decides on the copies, expiry and reads of a broker's segments.

What belongs here: the KIP's manager, of which the rules are written (its interface to a log is
``tierlog.log.partition_log``), and reading batches of the tier from an offset on (``batch_reads``), which the replica
does by the same code. What does not: the log itself (``tierlog.log.local``), the older page's remote log index
(``remote.log_index``), reading history without a broker (``tierlog.scan``), looking after a bucket
(``tierlog.upkeep``), object layouts and stores (``remote.storage``), which segments are the log (``remote.metadata``).
"""
