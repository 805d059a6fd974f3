"""What a store is, for who reads and writes one and for who writes one.

What belongs here: reading, writing and listing (``object_store``), reads that hold no thread or land in the
caller's memory (``optional_reads``), the half that writes (``store_writer``), what a store can and how that
is found out, and small parts that all stores share. What does not: any particular store.
"""
