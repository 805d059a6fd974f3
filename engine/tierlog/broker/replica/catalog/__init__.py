"""The content of a bucket, as a server knows it: topics by keys alone, histories when they are asked for; both
followed.

What belongs here: listing a bucket at intervals, choosing which topics are served, resolving partitions in threads when
they are asked for, and putting new histories in the place of old ones. Why: a client is answered at once over a bucket
of any size, and one bad object harms its partition alone. What does not: reading records (the modules beside this),
listing and resolving themselves (``scan.following``), and which segments count (``scan.history``).
"""
