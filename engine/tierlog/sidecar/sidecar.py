"""The parts of a sidecar, made and ended together: a storage manager, its answers, the server."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

from tierlog.aio.segment_stream import AsyncSegmentStream
from tierlog.aio.storage_manager import AsyncStorageManager
from tierlog.errors import ConfigError
from tierlog.remote.api import RemoteStorageException
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.unix_socket import notify_systemd
from tierlog.runtime.waiting.loops import Alarm, Worker
from tierlog.serving.admission import RequestMemory
from tierlog.serving.connection import SCRATCH_BYTES
from tierlog.serving.http_endpoint import HttpEndpoint
from tierlog.serving.refusals import Refusals
from tierlog.serving.server import FramedServer, run_server
from tierlog.sidecar.allowed_logs import AllowedLogs
from tierlog.sidecar.mbeans import encode_mbeans
from tierlog.sidecar.parked_pieces import ParkedPieces
from tierlog.sidecar.protocol import config_digest
from tierlog.sidecar.request_answers import BrokerClient, SidecarAnswers
from tierlog.sidecar.sidecar_config import SidecarConfig
from tierlog.sidecar.sidecar_metrics import SidecarMetrics
from tierlog.sidecar.stored_objects import StoredObjects

_log = logging.getLogger(__name__)

_SWEEP_SECONDS: Final = 0.5
#: Each of 10 MiB at most, by Kafka's default.
_INDEXES_MAX: Final = 8


class Sidecar:
    """A server of one storage manager to the brokers of this machine.

    Args:
        config: Its configuration.
        machine: Clock, threads and files.

    Made, started and stopped on one event loop.
    """

    def __init__(self, config: SidecarConfig, machine: Machine | None = None) -> None:
        self._config = config
        self._machine = machine or Machine()
        self._parts = AsyncExitStack()
        self._server: FramedServer | None = None
        self._answers: SidecarAnswers | None = None
        self._worker: Worker | None = None
        self._manager: TieredStorageManager | None = None

    async def start(self) -> tuple[str, int]:
        """Configure the storage manager and begin to listen; returns the address, ``unix:PATH`` and 0.

        Raises:
            ConfigError: a key is malformed, or the store refuses us. OSError: the address cannot be listened on.
        """
        try:
            return await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> tuple[str, int]:
        config, machine = self._config, self._machine
        stored = StoredObjects(machine.scheduler.lock())
        manager = TieredStorageManager(machine=machine, wrap_store=stored.wrap)
        storage = AsyncStorageManager(manager, copies=config.copies_max, threads=config.threads_max, machine=machine)
        self._parts.push_async_callback(storage.aclose)
        await storage.configure(config.storage_keys)
        metrics = SidecarMetrics()
        memory = RequestMemory(config.serving.queued_max_request_bytes, small_bytes=SCRATCH_BYTES)
        parked: ParkedPieces[AsyncSegmentStream] = ParkedPieces(config.parked_streams_max, machine.clock)
        indexes: ParkedPieces[bytes] = ParkedPieces(_INDEXES_MAX, machine.clock)
        metrics.memory_bytes = lambda: memory.used_bytes
        metrics.parked_streams = lambda: len(parked)
        self._worker = worker = Worker(machine.scheduler.pool(1, name="tierlog-sidecar"), machine)
        self._parts.callback(worker.close)
        self._answers = SidecarAnswers(
            storage,
            digest=self._digest_of(config.storage_keys),
            logs=AllowedLogs(config.allowed_logs, learns=config.is_child),
            parked=parked,
            indexes=indexes,
            stored=stored,
            memory=memory,
            metrics=metrics,
            clock=machine.clock,
            mbeans=partial(
                worker.run, partial(encode_mbeans, {"storage": manager.metrics.registry, "sidecar": metrics.registry})
            ),
            unready=self._unready_reason,
        )
        self._manager = manager
        server = FramedServer(
            config.serving,
            machine,
            new_client=lambda host, number, _reached: BrokerClient(host, number),
            answer=self._answers.answer,
            memory=memory,
            refusals=Refusals(machine),
            metrics=metrics,
            worker=worker,
            unix=config.listener,
        )
        if config.monitor is not None:
            registries = metrics.registry, manager.metrics.registry
            endpoint = HttpEndpoint(
                *config.monitor, registries=registries, health=self._unready_reason, machine=machine
            )
            await endpoint.start()
            self._parts.push_async_callback(endpoint.stop)
        address = await server.start()
        self._parts.push_async_callback(_close_all, parked)
        self._parts.push_async_callback(server.stop)
        server.start_chore(self._close_unwanted(parked, indexes))
        self._server = server
        _log.info("event=started address=%s", address[0])
        notify_systemd("READY=1")
        return address

    def _digest_of(self, keys: Mapping[str, str]) -> bytes | None:
        """Return the digest that a client's has to be. The broker of a child has given the keys itself, and the
        sidecar's own among them, which are in its digest.
        """
        return None if self._config.is_child else config_digest(keys)

    def _unready_reason(self) -> str:
        """Return the reason why the server is not ready; "" if it is."""
        if self._server is None:
            return "the sidecar does not listen yet"
        return "the sidecar stops" if self._answers is not None and self._answers.is_stopping else ""

    async def _close_unwanted(self, parked: ParkedPieces[AsyncSegmentStream], indexes: ParkedPieces[bytes]) -> None:
        """Close streams, and drop indexes, for which no next piece was asked, for as long as the server runs."""
        while True:
            await Alarm(self._machine.timers).wait(_SWEEP_SECONDS)
            indexes.take_expired()
            for stream in parked.take_expired():
                await stream.aclose()

    async def stop(self) -> None:
        """Answer the requests under way, undo the copies that take longer than the grace, close the storage manager;
        idempotent.
        """
        if self._server is not None:
            notify_systemd("STOPPING=1")
        if self._answers is not None:
            self._answers.is_stopping = True
        parts, self._parts = self._parts, AsyncExitStack()
        await parts.aclose()
        self._server = None

    async def reload(self) -> None:
        """Read the configuration, the keys of encryption and the store's credentials again. A configuration that cannot
        be used, or that differs otherwise, is logged, and not used.
        """
        worker, manager, answers = self._worker, self._manager, self._answers
        if self._server is None or worker is None or manager is None or answers is None:
            return
        try:
            keys = await worker.run(self._config.read_storage_keys)
            await worker.run(partial(manager.reload, keys))
            answers.digest = self._digest_of(keys)
        except (ConfigError, RemoteStorageException) as error:
            _log.error("event=configuration_kept reason=%r", str(error))
            return
        _log.info("event=configuration_reloaded")


async def _close_all(parked: ParkedPieces[AsyncSegmentStream]) -> None:
    """Close all streams that are kept."""
    for stream in parked.take_expired(all_of_them=True):
        await stream.aclose()


def serve_sidecar(
    config: SidecarConfig,
    *,
    on_ready: Callable[[str, int], None],
    machine: Machine | None = None,
) -> None:
    """Run a sidecar until SIGTERM or SIGINT. Only for the main thread.

    Args:
        config: The sidecar's configuration.
        on_ready: Called with the address once clients can connect.
        machine: By default this machine.

    Raises: as ``Sidecar.start``.
    """
    sidecar = Sidecar(config, machine)
    behind_stdin = config.listener.remove_private_folder if config.is_child else None
    run_server(sidecar.start, sidecar.stop, sidecar.reload, on_ready, behind_stdin=behind_stdin)
