"""Kafka's wire protocol: servers that any Kafka client reads from.

What belongs here: versions of requests (``protocol``), authentication and dispatch (``server``), the Fetch API
(``fetching``), consumer groups (``groups``), the other APIs (``apis``), and what is served: ``replica`` serves a
tiered bucket, read-only. Why: protocol, sessions, groups and security are written once, for the replica
and for a broker to come, over the protocols in ``partitions``. What does not: reading a configuration file, printing
(``cli``), and deciding which segments are a partition's history (``scan``).

All rooms need the extra ``server``.
"""
