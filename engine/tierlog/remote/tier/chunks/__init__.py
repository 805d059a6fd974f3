"""A stored segment and the chunks of its log: where they lie, how they are made and undone.

What belongs here: ``StoredSegment``, making chunks (compress, encrypt) and undoing them, the keys for it, and windows
of plain log bytes for a reader of whole segments. What does not: who wrote the objects (``objects``, ``layouts``), and
reading for many at once (``fetch``).
"""
