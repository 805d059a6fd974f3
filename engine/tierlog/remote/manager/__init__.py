"""The RemoteLogManager: which segments are copied, expire and are read, in a broker.

What belongs here so far: the remote log index of KIP-405's older page (``remote_log_index``). What does not: reading
history without a broker (``tierlog.scan``), looking after a bucket (``tierlog.upkeep``), object layouts and stores
(``remote.storage``), which segments are the log (``remote.metadata``).
"""
