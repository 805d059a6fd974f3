"""The only leaves that touch the world: the clock, files, and object stores.

What belongs here: a small protocol for each, the production implementation, and one that tests drive by hand
(``ManualClock``, ``MemoryFiles``, ``FailingStore``, ``CountingStore``). Why: faults and time are injected from the
start, so that every retry and cleanup path has a test that takes it. What does not: anything that knows a format.

Nothing above this room opens a file, a socket, or reads the time otherwise.
"""
