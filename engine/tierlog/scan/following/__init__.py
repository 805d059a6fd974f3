"""A tier that others write, followed: listed again and again, each partition resolved anew where it changed.

What belongs here: listings by keys alone (``tier_listing``) or by metadata (``known_partitions``), the history of a
listed partition, with what may still come in front of it (``resolution``), and both together for who asks by own calls
(``followed_tier``). What does not: which segments count (``scan.history``), planning and reading records, threads and
loops that follow by themselves (``broker.replica.catalog``).

Invariant: offsets that no segment holds yet are not passed over as long as one may come that does.
"""
