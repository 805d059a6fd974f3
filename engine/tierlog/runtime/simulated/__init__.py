"""The machine and its disk from a seed, for tests and the simulator of clusters.

``ManualScheduler`` runs all work in one thread, in an order that a seed decides; ``MemoryFiles`` loses in a crash bytes
that were not fsynced. What belongs here: replacements of leaves of ``runtime``. What does not: faults that strike them
(``tierlog.testing``), and anything that production imports, but for ``MemoryFiles`` over real files, on which dry runs
work.
"""
