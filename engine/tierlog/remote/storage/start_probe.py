"""The questions that a storage manager asks its store when it starts: our identity, and its optional features.

A wrong name, missing rights or unknown credentials make ``configure`` fail with the store's own words: a broker that
started with them would find out hours later, with its disk full. A store that does not answer within seconds does not
make it fail, since brokers are restarted while stores are down: it is asked again, in the background, after the first
copy that reached it.
"""

from __future__ import annotations

import logging
from typing import Final

from tierlog.errors import ConfigError, NoThreadError, StoreNotReachedError, StoreUnavailableError
from tierlog.remote.config import StorageConfig
from tierlog.remote.storage.copy.leftovers import Leftovers, Remains
from tierlog.remote.storage.storage_metrics import StorageMetrics
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.protocol.store_probe import (
    PARTS_SUFFIX,
    StoreCapabilities,
    identity_of,
    probe_key,
    probe_store,
    remove_probe,
)
from tierlog.runtime.stores.wrappers.passing_store import MASK
from tierlog.runtime.waiting.threads import BoundedCalls

_log = logging.getLogger(__name__)

#: Seconds that a broker's start waits for a store at most.
_START_SECONDS: Final = 15.0
_AGAIN_SECONDS: Final = 120.0


class StartProbe:
    """The probe of one store, which is asked once.

    Args:
        store: The configured store.
        config: Says whether to ask, and below which key prefix.
        calls: Runs the requests, for as long as a caller waits for them.
        leftovers: Takes the objects that an unanswered probe may have left.
        metrics: ``store_info`` shows the answers.

    Attributes:
        identity: Our identity for the store, never a secret; None as long as it is unknown.
        capabilities: The store's optional features; None as long as they are unknown.

    Thread safety: any number of threads.
    """

    def __init__(
        self,
        store: ObjectStore,
        config: StorageConfig,
        *,
        calls: BoundedCalls,
        leftovers: Leftovers,
        machine: Machine,
        metrics: StorageMetrics,
    ) -> None:
        self.identity: str | None = None
        self.capabilities: StoreCapabilities | None = None
        self._store = store
        self._prefix = config.key_prefix
        self._masked = config.key_prefix if config.key_prefix_mask else ""
        self._enabled = config.store_probe_enabled
        self._calls = calls
        self._leftovers = leftovers
        self._machine = machine
        self._metrics = metrics
        self._lock = machine.scheduler.lock()
        self._due = False

    def at_start(self) -> None:
        """Ask the store, and log the answers in one line.

        Raises:
            ConfigError: the store does not exist, does not know us, or does not let us write and remove.
        """
        try:
            self._ask(_START_SECONDS)
        except (PermissionError, FileNotFoundError) as error:
            raise ConfigError(self._told(error)) from (None if self._masked else error)
        except OSError as error:  # StoreError among them
            self._metrics.tell_store("unanswered", self._store.describe())
            self._due = True
            _log.warning("the store did not answer at the start, and is asked again later: %s", self._told(error))

    def after_copy(self) -> None:
        """Ask again, in a thread of the probe's own, if the store did not answer before."""
        with self._lock:
            due, self._due = self._due, False
        if due:
            try:
                self._machine.scheduler.start(self._ask_again, name="tierlog-probe")
            except NoThreadError:
                self._due = True

    def _ask_again(self) -> None:
        try:
            self._ask(_AGAIN_SECONDS)
        except Exception as error:  # noqa: BLE001 - the copy is done, whatever a third party's store raises here
            self._due = True
            _log.warning("what the store does is not known yet: %s", self._told(error))

    def _ask(self, seconds: float) -> None:
        key = probe_key(self._machine, self._prefix)
        try:
            self._calls.run("the start probe", lambda: self._asked(key), seconds=seconds)
        except StoreNotReachedError:
            raise
        except StoreUnavailableError:
            self._leftovers.undo(self._remains(key), seconds_left=lambda: 0.0)
            raise

    def _remains(self, key: str) -> Remains:
        def remove(_: bool) -> list[str]:
            remove_probe(self._store, key)
            return []

        return Remains("the start probe", remove, lambda: [key, f"{key}{PARTS_SUFFIX}"], doubtful=True)

    def _asked(self, key: str) -> None:
        where = self._store.describe()
        self.identity = identity_of(self._store)
        if not self._enabled:
            self._metrics.tell_store("off", where)
            _log.info("%s: we are %s; not asked what it does (store.probe.enabled)", where, self.identity)
            return
        self.capabilities = probe_store(self._store, key)
        self._metrics.tell_store("known", where, self.capabilities)
        _log.info("the store: we are %s; %s", self.identity, self.capabilities)  # which begins with where it is

    def _told(self, error: Exception) -> str:
        text = "; ".join([str(error), *getattr(error, "__notes__", ())])
        return text.replace(self._masked, MASK) if self._masked else text
