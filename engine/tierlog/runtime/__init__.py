"""The only leaves that touch the world: clock, chance, threads, files and object stores.

What belongs here: a small protocol for each (``Clock``, ``Rng``, ``Scheduler``, ``Files``, ``ObjectStore``), the
production implementation, and one that tests drive by hand: ``ManualClock``, ``SeededRng``, ``ManualScheduler`` (one
thread, in an order that a seed decides), ``MemoryFiles`` (which forgets in a crash what was not fsynced),
``FailingStore``, ``CountingStore``. All but the stores come as one argument, ``machine: Machine``. Why: faults, time
and the order of events are injected from the start, so that every retry and cleanup path has a test that takes it,
and a simulator of whole clusters replaces these leaves and nothing else. What does not: anything that knows a format.

Nothing above this room sleeps, locks, spawns, draws lots, opens a file or a socket, or reads the time otherwise; a lint
holds it.
"""
