"""The machine and its disk from a seed: what tests and the simulator of clusters put in its place.

``ManualScheduler`` runs all work in one thread, in an order that a seed decides; ``MemoryFiles`` forgets in a crash
what was not fsynced, and ``FailingDisk`` and ``PowerCut`` strike it at the n-th operation; ``FailingStore`` fails the
calls that a test names. What belongs here: replacements of leaves of ``runtime``. What does not: anything that
production imports, but for ``MemoryFiles`` over real files, on which dry runs work.
"""
