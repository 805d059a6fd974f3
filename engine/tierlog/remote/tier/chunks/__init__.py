"""A stored segment and the chunks of its log: their places, their transform and its reversal.

What belongs here: ``StoredSegment``, making chunks (compress, encrypt) and undoing them, the keys for it, and windows
of plain log bytes for a reader of whole segments. What does not: the writers of the objects (``objects``, ``layouts``),
and reading for many at once (``fetch``).
"""
