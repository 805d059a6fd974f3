"""``tierlog dump``: the walk over logs, indexes and snapshots, and the formats that it prints them in.

What belongs here: Kafka's lines, JSON lines, and which sources a path names. What does not: parsing (``tierlog.log``).
"""
