"""Copies of closed segments into a bucket, each checked on its way and read back.

What belongs here: a segment as the files that a broker would hand over, the repair of what lies beside its log, the
order of a copy and its check. What does not: how objects are written (``remote.storage.copy``).
"""
