"""A tiered bucket as a server's topics, read-only.

What belongs here: the catalog of a bucket that is listed again and again, and partitions that are read by ranges
through the storage manager's caches. Why: any Kafka client reads the history, and no broker notices. What does not:
which segments count (``scan.history``), how a chunk is fetched (``remote.storage.fetch``), the protocol (the rooms
beside this).
"""
