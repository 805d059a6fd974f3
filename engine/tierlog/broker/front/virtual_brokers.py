"""The ports that stand for brokers, and where the brokers are."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tierlog.errors import ConfigError

_log = logging.getLogger(__name__)

#: Under .invalid (RFC 2606) no name is found by any client: it goes on without that broker.
_NO_PORT: Final = "broker-{}.has-no-port-here.invalid"


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker of the cluster, and its address on the listener in front of which the server stands."""

    node_id: int
    host: str
    port: int


class VirtualBrokers:
    """The brokers of a cluster, each behind a port of the front. For the loop's thread.

    A broker's port follows from its id alone (``first_port`` + id % number of ports), so that it is the same after a
    restart, and in every front of the cluster with as many ports.

    Args:
        ports: Of this server.
    """

    def __init__(self, ports: range) -> None:
        self._ports = ports
        self._by_port: dict[int, Broker] = {}
        #: Those of the newest listing: a port goes to another broker only when its own is none of them.
        self._listed: frozenset[int] = frozenset()
        self._without_port: set[int] = set()

    @property
    def ports(self) -> range:
        return self._ports

    def brokers(self) -> list[Broker]:
        """Return the known brokers that have a port."""
        return list(self._by_port.values())

    def listed(self) -> list[Broker]:
        """Return those of the newest listing that have a port: the cluster has taken the others out."""
        return [broker for broker in self._by_port.values() if broker.node_id in self._listed]

    def port_of(self, node_id: int) -> int:
        """Return the port that stands for a broker."""
        return self._ports[node_id % len(self._ports)]

    def at(self, port: int) -> Broker | None:
        """Return the broker behind a port, if one is known."""
        return self._by_port.get(port)

    def find(self, node_id: int) -> Broker | None:
        """Return a broker by its id, if it is known and has a port."""
        found = self._by_port.get(self.port_of(node_id))
        return found if found is not None and found.node_id == node_id else None

    def check(self, brokers: Iterable[Broker]) -> None:
        """Raise ConfigError where two brokers would have one port."""
        by_port: dict[int, int] = {}
        for broker in brokers:
            other = by_port.setdefault(self.port_of(broker.node_id), broker.node_id)
            if other != broker.node_id:
                raise ConfigError(
                    f"--advertise: brokers {other} and {broker.node_id} would have one port with {len(self._ports)} "
                    "ports; take a range of more, or of another length"
                )

    def replace(self, brokers: Iterable[Broker]) -> None:
        """Take a listing of the cluster. A broker that is not in it keeps its port until another one needs that."""
        listed = list(brokers)
        self._listed = frozenset(broker.node_id for broker in listed)
        for broker in listed:
            self._take(broker)

    def endpoint_of(self, node_id: int, host: str, port: int, *, advertised_host: str) -> tuple[str, int]:
        """Return what a client is told in place of a broker's endpoint, which is learned by it."""
        if self._take(Broker(node_id, host, port)):
            return advertised_host, self.port_of(node_id)
        return _NO_PORT.format(node_id), self.port_of(node_id)

    def _take(self, broker: Broker) -> bool:
        """Whether a broker has its port."""
        port = self.port_of(broker.node_id)
        owner = self._by_port.get(port)
        if owner == broker:
            return True
        if owner is not None and owner.node_id != broker.node_id and owner.node_id in self._listed:
            if broker.node_id not in self._without_port:
                self._without_port.add(broker.node_id)
                _log.error(
                    "event=broker_without_port node=%d port=%d: it is broker %d's; clients cannot reach it here until "
                    "the front is started with a longer range of ports",
                    *(broker.node_id, port, owner.node_id),
                )
            return False
        self._without_port.discard(broker.node_id)
        self._by_port[port] = broker
        _log.info("event=broker node=%d port=%d upstream=%s:%d", broker.node_id, port, broker.host, broker.port)
        return True
