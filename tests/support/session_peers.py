"""Whether this process talks to a server or a JVM that runs for the whole session.

Their clients connect when they like: py4j, for one, opens a connection for a Java object that Python's collector finds
in the midst of a test that knows nothing of Spark. From then on a socket more is no test's fault. Tests that are run
without Spark and without servers (a file or a folder of them) count sockets.
"""

from __future__ import annotations

import sys

from tests.support.servers import StoreServer


class SessionPeers:
    """The servers of the session's fixtures, and Spark's JVM where there is one."""

    def __init__(self) -> None:
        self._servers: list[StoreServer] = []

    def add(self, server: StoreServer) -> None:
        """A server that runs from now on."""
        self._servers.append(server)

    def running(self) -> bool:
        """Whether there is any."""
        context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
        return bool(self._servers) or getattr(context, "_gateway", None) is not None
