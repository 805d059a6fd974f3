"""The APIs of consumer groups: from a request's fields to an answer's, at all versions.

What belongs here: what a version calls a thing, and what it has no room for. Why: the rooms above the wire know one
form of each request. What does not: who may do what, and when (``groups``).
"""
