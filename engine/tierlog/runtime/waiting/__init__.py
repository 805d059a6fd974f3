"""Every primitive of waiting, for threads and for event loops, on the machine's time.

Three disciplines:

- Threads over a ``Scheduler`` (``runtime.machine.scheduling``): all work that blocks. A simulator runs it from a seed.
- An event loop: sockets, and what thousands of clients wait for at once. Its time is ``Machine.timers``.
- Generators that yield a ``Wait``: code that both need, such as one read that serves a thread and a loop.

``threads``:

- ``Event``: something happens once, and any number of threads wait for it.
- ``Arrivals``: the first of several results is needed.
- ``run_all``: a known number of calls go on in a pool, and their results are needed in order.
- ``OrderedCalls``: the same without an end in sight, at most so many ahead of the reader.
- ``BoundedCalls``: a call must not take longer than its caller has, whatever the store does.

For threads and loops:

- ``cancellable_future.CancellableFuture``: a caller waits for one result, or cancels what makes it.
- ``waits.Wait``: code cannot go on without something; ``WaitingThreads`` and ``Worker.drive`` drive such code.
- ``waits.SharedLoads``: several callers want the same value at the same time, and one load serves all.
- ``turns.MemoryBudget``: memory is lent to many streams that hold it for a while.
- ``byte_quota.ByteQuota``: bytes a second are limited, and callers ask whether more may pass; nothing waits in it.
- ``turns.FairQueue``: waiters are served key by key, so that no key starves the others.

``loops`` and ``side_by_side``, which import asyncio, and which nothing below ``aio`` and ``broker`` uses:

- ``Alarm``: tasks wait for what any thread, or the loop, does.
- ``LoopFuture``: one task waits for one value.
- ``LoopCalls``: a thread has a call for the loop, or a coroutine runs for no task.
- ``Worker``: a task needs the result of a blocking call; its ``one_at_a_time``: an owner may hold one thread at most.
- ``SharedCall``: several tasks want the result of one coroutine.
- ``Begun``: a coroutine mostly ends without waiting, and is then to cost no task.
- ``file_part.FilePart``: bytes of a file go to a socket, and a thread reads those that the system dropped from memory.
- ``run_each``: many coroutines, a bounded number at once, within a time.

What ends a wait early: ``waits.Interrupt`` for one owner's, ``CancelScope`` (``runtime.machine.cancelling``) for the
reads of a block, ``cancel`` for a task's.

What belongs here: waiting that knows no format, no store and no manager. What does not: threads, locks, clocks and
files themselves (``runtime.machine``).
"""
