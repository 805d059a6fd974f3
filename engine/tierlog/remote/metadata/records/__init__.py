"""The records of ``__remote_log_metadata``: bytes to values and back, and their texts.

What belongs here: one record. What does not: what many records together say (``remote.metadata.table``).
"""
