"""One tier: a prefix of a bucket, or a folder, under one layout.

What belongs here: opening it, and its topics, partitions and segments. What does not: which of them are the log
(``remote.metadata``, ``tierlog.scan``).
"""
