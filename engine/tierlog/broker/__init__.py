"""Kafka's wire protocol: servers that any Kafka client reads from.

What belongs here: versions of requests (``protocol``), authentication and dispatch (``server``), the Fetch API
(``fetching``), consumer groups (``groups``), the other APIs (``apis``), and the served data: ``replica`` serves a
tiered bucket, read-only, and ``front`` has it stand in front of a live cluster. Why: protocol, sessions, groups and
security are written once, for the replica and for a broker to come, over the protocols in ``partitions``. What does
not: reading a configuration file, printing (``cli``), and choosing the segments of a partition's history (``scan``).

All rooms need the extra ``server``.
"""
