"""Accepting connections: within limits, and on through a lack of descriptors."""

from __future__ import annotations

import asyncio  # noqa: TID251 - this room is the loop's
import collections
import errno
import ipaddress
import resource
import socket  # noqa: TID251 - this room is the sockets'
from collections.abc import Callable, Sequence
from typing import Final

from tierlog.runtime.machine.clock import Timer, Timers
from tierlog.runtime.machine.unix_socket import UNIX, peer_name
from tierlog.serving.serving_config import ServingConfig

#: Connections that are accepted before the loop looks at other sockets again.
_ACCEPTS_MAX: Final = 16
_RETRY_SECONDS: Final = 0.5
#: On its way to a client of this machine: a mebibyte goes out by one call. The system cuts it to its own limit.
_LOCAL_SEND_BYTES: Final = 1 << 20
#: No descriptor or no memory is to be had now.
_LACKS: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
#: What Linux says of a connection that broke before it was accepted.
_BROKEN: Final = frozenset(
    (
        *(errno.ECONNABORTED, errno.EPERM, errno.EPROTO, errno.ENETDOWN, errno.ENOPROTOOPT, errno.EHOSTDOWN),
        *(errno.ENONET, errno.EHOSTUNREACH, errno.EOPNOTSUPP, errno.ENETUNREACH, errno.EINTR, errno.ETIMEDOUT),
    )
)
_MAPPED: Final = "::ffff:"


def host_of(address: tuple[object, ...]) -> str:
    """Return the host of a socket's address; of an IPv4 one within IPv6 the IPv4 address, as clients know it."""
    host = str(address[0])
    return host[len(_MAPPED) :] if host.startswith(_MAPPED) and "." in host else host


def is_reachable(host: str) -> bool:
    """Whether others than this machine can connect to an address that is listened on."""
    return not ipaddress.ip_address(host).is_loopback


async def listen_on_port(config: ServingConfig, port: int, loop: asyncio.AbstractEventLoop) -> socket.socket:
    """Listen on the configured host and a port. Raises OSError: they cannot be listened on."""
    family, address, is_dual = socket.AF_INET, ("", port), False
    if config.host:
        found = await loop.getaddrinfo(config.host, port, type=socket.SOCK_STREAM)
        family, _, _, _, resolved = min(found, key=lambda each: each[0] != socket.AF_INET)
        address = (str(resolved[0]), port)
    elif socket.has_dualstack_ipv6():
        family, is_dual = socket.AF_INET6, True
    listener = socket.create_server(
        address, family=family, backlog=config.socket_listen_backlog_size, dualstack_ipv6=is_dual
    )
    listener.settimeout(0)
    return listener


def _no_refusal(_accepted: socket.socket) -> str:
    return ""


class Acceptor:
    """The acceptor of connections on all listening sockets of a server. For the loop's thread.

    At ``max_connections`` nothing is accepted until one is gone: the next ones wait in the system's queue, as with
    Kafka. Those above ``max_connections_per_ip`` are closed at once.

    Args:
        config: Where to listen, and how many connections there may be.
        timers: The clock of the loop.
        refused: Called for each refusal with the kind, the client's host ("-" if it is not known), the reason.
        accepted: Takes an accepted socket and the client's host; ``closed`` is called once it is closed. On this
            machine, over a path, the host is the client's process.
        refusal: Says why a client may not connect; "" if it may.
        descriptors_each: What a connection takes of the process's descriptors.

    Attributes:
        open_count: Connections that were accepted and are not closed.
    """

    def __init__(
        self,
        config: ServingConfig,
        *,
        loop: asyncio.AbstractEventLoop,
        timers: Timers,
        refused: Callable[[str, str, str], None],
        accepted: Callable[[socket.socket, str], None],
        refusal: Callable[[socket.socket], str] = _no_refusal,
        descriptors_each: int = 1,
    ) -> None:
        self._config = config
        self._refusal = refusal
        self._loop = loop
        self._timers = timers
        self._refused = refused
        self._accepted = accepted
        self._listeners: list[socket.socket] = []
        self._is_watching = False
        self._retry: Timer | None = None
        self._spare: socket.socket | None = None
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._open_max = min(config.max_connections, max(descriptors * 7 // 8 // descriptors_each, 1))
        self.open_count = 0
        self._by_host: collections.Counter[str] = collections.Counter()

    def start(self, listeners: Sequence[socket.socket]) -> tuple[str, int]:
        """Begin to accept on sockets that listen, which are closed with this; returns the address of the first one."""
        self._listeners = list(listeners)
        self._spare = socket.socket()
        self._watch()
        listener = self._listeners[0]
        bound = listener.getsockname()
        return (UNIX + bound, 0) if listener.family == socket.AF_UNIX else (host_of(bound), bound[1])

    def close(self) -> None:
        """Accept nothing more; idempotent."""
        self._unwatch()
        if self._retry is not None:
            self._retry.cancel()
        for listener in self._listeners:
            listener.close()
        self._listeners = []
        if self._spare is not None:
            self._spare.close()
            self._spare = None

    def closed(self, host: str) -> None:
        """Note that an accepted connection is closed."""
        self.open_count -= 1
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]
        if self._retry is None:
            self._watch()

    def _watch(self) -> None:
        if not self._is_watching and self._listeners and self.open_count < self._open_max:
            self._is_watching = True
            for listener in self._listeners:
                self._loop.add_reader(listener.fileno(), self._accept_some, listener)

    def _unwatch(self) -> None:
        if self._is_watching:
            self._is_watching = False
            for listener in self._listeners:
                self._loop.remove_reader(listener.fileno())

    def _accept_some(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPTS_MAX):
            if self.open_count >= self._open_max:
                self._unwatch()
                return
            if not self._listeners or not self._accept(listener):
                return

    def _accept(self, listener: socket.socket) -> bool:
        """Accept one connection; False if there is none for now."""
        try:
            accepted, address = listener.accept()
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno in _LACKS:
                self._pause(listener, error)
                return False
            if error.errno in _BROKEN:
                return True
            raise
        is_local = accepted.family == socket.AF_UNIX
        host = peer_name(accepted) if is_local else host_of(address)
        refusal = self._refusal(accepted)
        if refusal:
            accepted.close()
            self._refused("peer", host, refusal)
            return True
        if self._by_host[host] >= self._config.max_connections_per_ip:
            accepted.close()
            self._refused("connections_per_ip", host, f"it has {self._by_host[host]} connections")
            return True
        try:
            accepted.settimeout(0)
            if is_local:
                accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LOCAL_SEND_BYTES)
            else:
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        except OSError:  # it broke meanwhile
            accepted.close()
            return True
        self.open_count += 1
        self._by_host[host] += 1
        self._accepted(accepted, host)
        return True

    def _pause(self, listener: socket.socket, error: OSError) -> None:
        """Accept nothing for a while. The spare descriptor lets the first waiting client get an answer now rather than
        never.
        """
        self._unwatch()
        self._refused("descriptors", "-", f"no connection can be accepted: {error}")
        if self._spare is not None:
            self._spare.close()
            try:
                listener.accept()[0].close()
            except OSError as again:
                self._refused("descriptors", "-", f"the spare descriptor did not help: {again}")
            self._spare = self._new_spare()
        self._retry = self._timers.call_later(_RETRY_SECONDS, self._go_on)

    def _new_spare(self) -> socket.socket | None:
        try:
            return socket.socket()
        except OSError as error:
            self._refused("descriptors", "-", f"there is no spare descriptor: {error}")
            return None

    def _go_on(self) -> None:
        self._retry = None
        if self._spare is None and self._listeners:
            self._spare = self._new_spare()
        self._watch()
