"""Looking after tiers and logs without a broker: verify, export, copy between buckets, orphans, key rotation.

What belongs here: jobs over whole partitions that change or judge what is stored. What does not: reading records for a
user (``tierlog.scan``), the storage manager that does each copy (``remote.storage``), printing (``cli``).
"""
