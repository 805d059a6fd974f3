"""Doubles for tests of a store, a log or a manager: fakes that fail on demand, and the same way for the same seed. A
program that embeds Tierlog, or gives it a store or a manager of its own, tests against these instead of mocks:

- ``MemoryStorageManager``: the KIP's RemoteStorageManager in memory. A metadata manager, or a broker's task that copies
  segments, is tested beside it: calls fail while ``unavailable`` or ``refuses`` is set, and answers get lost.
- ``MemoryMetadataTopic``: the metadata topic in memory, shared by several managers
  (``TopicBasedRemoteLogMetadataManager(open_logs=lambda config, machine: topic)``). It is truncated, expires and is
  made anew on demand, and appends are lost or acknowledged late.
- ``FailingStore``: around a store of any make (``TieredStorageManager(wrap_store=…)``): errors, resets, stalls, short
  and wrong answers, writes that are done although they failed, by rates and a seed.
- ``FailingDisk``, ``PowerCut``: around ``MemoryFiles`` (``tierlog.runtime.simulated``): the n-th operation of a disk
  fails, or is the last one before the power goes; ``flip_bits`` lets files decay. A ``Machine`` with such files runs a
  manager, or a local log.

The suites that a third party's store, storage manager, metadata manager and log must pass are in ``tests/contract`` of
the source tree.

What belongs here: replacements of a leaf, or of a whole interface, for tests. What does not: anything that production
imports (the import contract of the rooms forbids it).
"""

from typing import TYPE_CHECKING

from tierlog._lazy import lazy_names

if TYPE_CHECKING:
    from tierlog.testing.failing_disk import FailingDisk, PowerCut, flip_bits
    from tierlog.testing.failing_store import FailingStore
    from tierlog.testing.memory_metadata_topic import MemoryMetadataTopic
    from tierlog.testing.memory_storage_manager import MemoryStorageManager
else:
    _NAMES = {
        "tierlog.testing.failing_disk": ("FailingDisk", "PowerCut", "flip_bits"),
        "tierlog.testing.failing_store": ("FailingStore",),
        "tierlog.testing.memory_metadata_topic": ("MemoryMetadataTopic",),
        "tierlog.testing.memory_storage_manager": ("MemoryStorageManager",),
    }
    __getattr__, __dir__ = lazy_names(__name__, _NAMES)

__all__ = ["FailingDisk", "FailingStore", "MemoryMetadataTopic", "MemoryStorageManager", "PowerCut", "flip_bits"]
