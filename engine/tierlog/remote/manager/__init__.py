"""Scans: from what a user asks to Arrow, by way of small ranges that any process can read.

What belongs here: the request (``scan_request``), the plan: pruning and cutting (``scan_plan``), reading one range
(``scan_read``), searches by timestamp (``offset_lookup``), the other tables (``tables``);
the remote log index of KIP-405's older page (``remote_log_index``). What does not: object layouts
and stores (``remote.storage``), which segments are the log (``remote.metadata``), printing, Spark.
"""
