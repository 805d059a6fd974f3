"""A stored segment and the chunks of its log: where they lie, how they are made and undone.

What belongs here: ``StoredSegment``, the chunks' encoding (compress, encrypt) and decoding, the keys for it, and
windows of plain log bytes for who reads a whole segment. What does not: who wrote the objects (``objects``,
``layouts``), and reading for many at once (``fetch``).
"""
