"""Copying a segment into a store, deleting it, and undoing what failed.

What belongs here: one memory budget for all copies, deadlines, parts under way, leftovers and their second try. What
does not: how chunks and manifests are made (``chunks``, ``objects``), choosing what is copied (``remote.manager``).
"""
