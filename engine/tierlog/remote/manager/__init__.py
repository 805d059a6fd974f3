"""The RemoteLogManager: it decides which segments of a broker's partitions are copied, expired and read.

What belongs here: the KIP's manager, which is not written yet. What does not: the older page's remote log index
(``remote.log_index``), reading history without a broker (``tierlog.scan``), looking after a bucket
(``tierlog.upkeep``), object layouts and stores (``remote.storage``), which segments are the log (``remote.metadata``).
"""
