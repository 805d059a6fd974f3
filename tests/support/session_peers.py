"""Which sockets of this process lead to a server or a JVM that runs for the whole session.

Their clients connect when they like: py4j, for one, opens a connection for a Java object that Python's collector finds
in the midst of a test that knows nothing of Spark.
"""

from __future__ import annotations

import pathlib
import re
import sys

from tests.support.servers import StoreServer

_PORT = re.compile(r":(\d{2,5})(?=/|;|$)")


class SessionPeers:
    """The servers of the session's fixtures, and Spark's JVM where there is one."""

    def __init__(self) -> None:
        self._ports: set[int] = set()

    def add(self, server: StoreServer) -> None:
        """A server that runs from now on."""
        for text in (server.url, *server.options.values()):
            self._ports.update(map(int, _PORT.findall(text)))

    def sockets(self) -> frozenset[str]:
        """As links of /proc/self/fd name them."""
        ports = self._ports | _jvm_ports()
        return frozenset(_connections(ports)) if ports else frozenset()


def _jvm_ports() -> set[int]:
    pyspark = sys.modules.get("pyspark")
    gateway = getattr(getattr(pyspark, "SparkContext", None), "_gateway", None)
    if gateway is None:
        return set()
    found = {int(gateway.gateway_parameters.port)}
    callbacks = gateway.get_callback_server()
    return found if callbacks is None else found | {int(callbacks.get_listening_port())}


def _connections(ports: set[int]) -> list[str]:
    """Of these ports at either end."""
    found = []
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
            columns = line.split()
            local, remote = columns[1:3]
            if not ports.isdisjoint(int(end.rpartition(":")[2], 16) for end in (local, remote)):
                found.append(f"socket:[{columns[9]}]")
    return found
