"""Copying a segment into a store, deleting it, and undoing failed copies.

What belongs here: one memory budget for all copies, deadlines, parts under way, leftovers and their second try. What
does not: making chunks and manifests (``chunks``, ``objects``), choosing segments to copy (``remote.manager``).
"""
