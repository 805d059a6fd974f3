"""How each kind of tier names and describes its segments: one module a layout.

What belongs here: turning a listing into candidates (from keys alone) and a candidate into a ``StoredSegment`` (by
fetching what describes it). Why: the rest of the room does not know who wrote a bucket. What does not: log bytes, but
those that it takes to know where a segment ends.
"""
