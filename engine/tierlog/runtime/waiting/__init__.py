"""Every primitive of waiting, for threads and for event loops, on the machine's time.

Three disciplines:

- Threads over a ``Scheduler`` (``runtime.machine.scheduling``): all work that blocks. A simulator runs it from a seed.
- An event loop: sockets, and what thousands of clients wait for at once.
- Generators that yield a ``Wait``: code that both need, such as one read that serves a thread and a loop.

Blocking work, by threads:

- ``ordered_calls.OrderedCalls``: calls go on side by side, and their results are needed in order.
- ``bounded_calls.BoundedCalls``: a call must not take longer than its caller has, whatever the store does.

One read for threads and loops:

- ``waits.Wait``: code cannot go on without something; ``waits.WaitingThreads`` drives it in a thread.
- ``single_flight.Flights``: several want the same thing at the same time, and one load serves all.
- ``memory_budget.MemoryBudget``: memory is lent to many that hold it for a while.
- ``fair_queue.FairQueue``: what waits is served key by key, so that no key keeps out the others.
- ``wake_line.WakeLine``: a thousand threads wait, and must not all run at once.

An event loop (``loops``, ``side_by_side``; they import asyncio, and nothing below ``aio`` and ``broker`` uses them):

- ``Alarm``: tasks wait for what any thread, or the loop, does.
- ``Reply``: one task waits for one value.
- ``LoopCalls``: a thread has a call for the loop, or a coroutine runs for no task.
- ``Worker``: a task needs the result of a blocking call; its ``one_at_a_time``: an owner may hold one thread at most.
- ``SharedCall``: several tasks want the result of one coroutine.
- ``Begun``: a coroutine mostly ends without waiting, and is then to cost no task.
- ``run_each``: many coroutines, a bounded number at once, within a time.

What belongs here: waiting that knows no format, no store and no manager. What does not: threads, locks, clocks and
files themselves (``runtime.machine``).
"""
