"""The only rooms that touch the world: clock, randomness, threads, files and object stores.

``machine`` has a small protocol for each of them but the stores, and the implementations of this machine, as one
``Machine``; ``waiting`` has what threads and event loops wait by, ``weighted_cache`` a cache in memory; ``stores`` has
the object stores; ``simulated`` has replacements that tests and a simulator of clusters drive by hand. Why: faults,
time and the order of events are injected from the start, so that every retry and cleanup path has a test that takes it.
What belongs here: code that touches the world. What does not: anything that knows a format.

Nothing above this room sleeps, locks, spawns, draws lots, opens a file or a socket, or reads the time otherwise; a lint
holds it.
"""
