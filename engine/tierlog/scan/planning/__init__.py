"""Planning a request: offsets resolved, segments pruned, ranges cut at batch borders.

What belongs here: everything that is decided before the first record is decoded, and the small reads that it takes.
What does not: decoding ranges (``scan.reading``).
"""
