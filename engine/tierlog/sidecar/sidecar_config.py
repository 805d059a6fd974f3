"""The configuration of a sidecar: the command's options, and keys of a file beside the storage manager's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tierlog.arguments import INT32_MAX
from tierlog.config_keys import Int32, key, names_of, read_values
from tierlog.runtime.machine.unix_socket import UnixListener
from tierlog.serving.serving_config import ServingConfig


@dataclass(frozen=True, slots=True)
class SidecarServing(ServingConfig):
    """The limits of a sidecar's connections, with defaults for clients of this machine.

    Raises:
        ConfigError: a value is out of range.
    """

    #: A copy takes as long as it takes, and its connection is silent meanwhile.
    connections_max_idle_ms: Int32 = key(
        "Time without a byte either way, also while a request is worked on; then a connection is closed.",
        default=INT32_MAX,
        minimum=1,
    )
    #: The largest is a copy's, with its leader epoch checkpoint.
    socket_request_max_bytes: Int32 = key("The largest request.", default=16 << 20, minimum=1)
    queued_max_request_bytes: int = key(
        "Memory of all requests, and of the pieces of segments and indexes that are being sent; a request of up to "
        "16 KiB never waits for it. -1 is no bound.",
        default=256 << 20,
        minimum=1,
        also=-1,
    )
    #: A client takes a piece in one call.
    response_deadline_ms: Int32 = key(
        "Time in which a client takes no byte of a response; then it is cut off.", default=10_000, own=True, minimum=1
    )
    stop_grace_ms: Int32 = key(
        "How long a stop waits for requests under way, copies among them; what is left then is cancelled, and undone.",
        default=30_000,
        own=True,
        minimum=0,
    )


@dataclass(frozen=True, slots=True)
class SidecarConfig:
    """The configuration of a sidecar.

    Args:
        listener: Where it listens.
        storage_keys: The storage manager's keys.
        read_storage_keys: Reads them again.
        serving: Limits of its connections.
        allowed_logs: Log directories whose segments it copies.
        is_child: Whether a broker's plugin has started it: it copies from whatever directory that names, and ends when
            its stdin does.
        monitor: Host and port for metrics and health; None for neither.

    Raises:
        ConfigError: a value is out of range.
    """

    listener: UnixListener
    storage_keys: Mapping[str, str] = field(repr=False)
    read_storage_keys: Callable[[], Mapping[str, str]] = field(repr=False)
    serving: SidecarServing = field(default_factory=SidecarServing)
    allowed_logs: tuple[str, ...] = ()
    is_child: bool = False
    monitor: tuple[str, int] | None = None
    copies_max: Int32 = key(
        "Copies at once; the next ones wait. A broker asks for remote.log.manager.copier.thread.pool.size at once.",
        default=32,
        own=True,
        minimum=1,
    )
    threads_max: Int32 = key(
        "Threads for deletions, and as many for disks and for opening chunks.", default=16, own=True, minimum=1
    )
    parked_streams_max: Int32 = key(
        "Streams of segments that are kept for 2 s for the next piece of the same range.",
        default=64,
        own=True,
        minimum=0,
    )


#: All keys of a file that a sidecar obeys, beside the storage manager's.
CONFIG_KEYS: Final = names_of(SidecarServing, SidecarConfig)


def read_sidecar_config(
    listener: UnixListener,
    read_keys: Callable[[], Mapping[str, str]],
    *,
    allowed_logs: tuple[str, ...] = (),
    is_child: bool = False,
    monitor: tuple[str, int] | None = None,
) -> SidecarConfig:
    """Return the configuration of a file's keys and of the command's options.

    Args:
        listener: Where it listens.
        read_keys: Reads CONFIG_KEYS by their names, and the storage manager's keys; called now, and to read them again.
        allowed_logs: Log directories whose segments it copies.
        is_child: Whether a broker's plugin has started it.
        monitor: Host and port for metrics and health.

    Raises:
        ConfigError: a key's value is malformed or out of range.
    """
    given = read_keys()
    keys = {name: value for name, value in given.items() if name in CONFIG_KEYS}
    return SidecarConfig(
        listener,
        _of_storage(given),
        lambda: _of_storage(read_keys()),
        SidecarServing(**read_values(SidecarServing, keys)),
        allowed_logs,
        is_child,
        monitor,
        **read_values(SidecarConfig, keys),
    )


def _of_storage(given: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in given.items() if name not in CONFIG_KEYS}
