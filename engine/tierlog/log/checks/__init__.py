"""Checks of the files beside a ``.log`` against it, and the content that they should have.

Belongs here: an index held against its log or rebuilt from it, transactions found by replaying batches, and the
findings that such a comparison reports. Does not belong here: the bytes of one file by itself (``log.formats``), or
which files and objects are compared (``upkeep.verification``).
"""
