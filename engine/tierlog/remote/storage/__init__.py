"""The RemoteStorageManager (``tiered_storage_manager``): copies, fetches and deletes segments for a broker.

What belongs here: ``copy``, ``fetch`` over ``cache`` and ``store_requests``, metrics, errors. Why: a broker asks for
ranges and indexes of one segment at a time, from many threads, and for copies that leave all of a segment or nothing.
What does not: what lies in a bucket and the store that a configuration names (``remote.tier``), keys
(``remote.config``), which segments belong together (``remote.metadata``).

Invariant: nothing decides which segments belong together; no lock is held across a store call.
"""
