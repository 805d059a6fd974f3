"""The Fetch API: sessions, waiting for bytes, and the memory that answers take.

What belongs here: what Fetch does for any server. Why: a session and a long poll are the same for a bucket and for a
local log. What does not: where the bytes come from (``Partition.read``).
"""
