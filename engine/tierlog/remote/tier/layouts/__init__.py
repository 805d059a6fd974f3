"""The names and descriptions of segments in each kind of tier: one module a layout.

What belongs here: turning a listing into candidates (from keys alone) and a candidate into a ``StoredSegment`` (by
fetching its description). Why: the rest of the room does not know a bucket's writer. What does not: log bytes, but for
those that show a segment's end.
"""
