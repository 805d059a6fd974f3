"""The segment table: which segments partitions have, for millions of them, over ``tierlog/segment_table.h``.

What belongs here: events in, answers out, as the KIP's values. What does not: where events come from.
"""
