"""Scans: history without a broker, from what a user asks to Arrow, by way of small ranges that any process can read.

What belongs here: the request (``scan_request``), the history that it is about (``history``), the plan: pruning and
cutting (``plan``, ``range_cutting``), reading one range (``read``), searches by timestamp (``offset_lookup``), answers
from headers (``aggregates``), the other tables (``tables``). What does not: object layouts and stores
(``remote.storage``), which segments are the log (``remote.metadata``), printing, Spark.

Invariant: plans are small, picklable and free of secrets; a count is never taken from offsets.
"""
