"""The interfaces of a store, for its users and for its implementers.

What belongs here: reading, writing and listing (``object_store``), reads that hold no thread or land in the caller's
memory (``optional_reads``), the half that writes (``store_writer``), a store's features and the probe for them, and
small parts that all stores share. What does not: any particular store.
"""
