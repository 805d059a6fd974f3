"""A stream over a tier: which offsets each batch has, on Spark's driver, for both engines.

What belongs here: the offsets of a stream (``stream_offsets``), how many a trigger takes (``trigger_limits``), what the
tier has gained and what a batch reads of it (``tier_stream``), and Spark's Python interface over these
(``stream_reader``). What does not: following a tier (``tierlog.scan.following``), planning and reading ranges.
"""
