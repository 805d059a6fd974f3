"""What a storage manager asks its store when it starts: who we are to it, and what it does of what differs.

A wrong name, missing rights or credentials that nobody knows end ``configure`` with the store's own words: a broker
that starts with them finds out hours later, with its disk full. A store that does not answer does not: brokers are
restarted while stores are down. It is asked again after the first copy that reached it.
"""

from __future__ import annotations

import logging

from tierlog.errors import ConfigError
from tierlog.remote.storage.config import StorageConfig
from tierlog.remote.storage.masked_store import MASK
from tierlog.remote.storage.metrics import StorageMetrics
from tierlog.runtime.machine import Machine
from tierlog.runtime.object_store import ObjectStore
from tierlog.runtime.store_probe import identity_of, probe_store
from tierlog.runtime.store_traits import StoreTraits

_log = logging.getLogger(__name__)


class StartProbe:
    """One store, asked once.

    Args:
        store: Of the configuration.
        config: Says whether to ask, and below which prefix.
        metrics: Its ``store_info`` shows what was found.

    Attributes:
        identity: Who we are to the store, never a secret; None as long as that is not known.
        traits: What the store does; None as long as that is not known.

    Thread safety: any number of threads.
    """

    def __init__(self, store: ObjectStore, config: StorageConfig, *, machine: Machine, metrics: StorageMetrics) -> None:
        self.identity: str | None = None
        self.traits: StoreTraits | None = None
        self._store = store
        self._prefix = config.key_prefix
        self._masked = config.key_prefix if config.key_prefix_mask else ""
        self._enabled = config.store_probe_enabled
        self._machine = machine
        self._metrics = metrics
        self._lock = machine.scheduler.lock()
        self._due = False

    def at_start(self) -> None:
        """Ask, and say in one line of the log what was found.

        Raises:
            ConfigError: the store is not there, does not know us, or refuses to let us write and remove.
        """
        try:
            self._ask()
        except (PermissionError, FileNotFoundError) as error:
            raise ConfigError(self._told(error)) from (None if self._masked else error)
        except OSError as error:  # StoreError among them
            self._metrics.tell_store("unanswered", self._store.describe())
            self._due = True
            _log.warning("the store did not answer at the start, and is asked again later: %s", self._told(error))

    def after_copy(self) -> None:
        """Ask again if the store did not answer before; one thread does, and nothing of it concerns the copy."""
        with self._lock:
            due, self._due = self._due, False
        if not due:
            return
        try:
            self._ask()
        except Exception as error:  # noqa: BLE001 - the copy is done, whatever a third party's store raises here
            self._due = True
            _log.warning("what the store does is not known yet: %s", self._told(error))

    def _ask(self) -> None:
        where = self._store.describe()
        self.identity = identity_of(self._store)
        if not self._enabled:
            self._metrics.tell_store("off", where)
            _log.info("%s: we are %s; not asked what it does (store.probe.enabled)", where, self.identity)
            return
        self.traits = probe_store(self._store, self._machine, key_prefix=self._prefix)
        self._metrics.tell_store("known", where, self.traits)
        _log.info("the store: we are %s; %s", self.identity, self.traits)  # which begins with where it is

    def _told(self, error: Exception) -> str:
        text = "; ".join([str(error), *getattr(error, "__notes__", ())])
        return text.replace(self._masked, MASK) if self._masked else text
