"""Fetching a segment's bytes for brokers.

What belongs here: streams of any range, chunks that are fetched once however many ask, prefetch, and one memory budget
for all readers. What does not: waiting as such (``runtime.waiting``), reading whole history (``tierlog.scan``).
"""
