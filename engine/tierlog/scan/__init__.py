"""Scans: history without a broker, from a user's request to Arrow, by way of small ranges that any process can read.

What belongs here: the request (``scan_request``), the history that it is about (``history``, ``transaction_history``),
the unit of work (``scan_range``); a tier that goes on (``following``); resolving, pruning and cutting (``planning``);
decoding ranges and answering from headers (``reading``). What does not: object layouts and stores (``remote.tier``),
which segments are the log (``remote.metadata``), printing, Spark.

Invariant: plans are small, picklable and free of secrets; a count is never computed from offsets.
"""
