"""Accepting where the system has nothing to give."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from tests.support.broker_servers import Client, MetadataHandler, serving
from tierlog.broker.server.server_config import ServerConfig
from tierlog.serving.accepting import host_of

#: Run in a process of its own, whose limit it is.
_SCRIPT = """
import resource, socket, time
from tests.support.broker_servers import Client, serving

with serving() as running:
    with running.client() as client:
        client.ask_metadata()
    used = len(__import__("os").listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 20, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    kept = [running.client()]
    assert kept[0].ask_metadata()
    refused = 0
    # Each connection has two descriptors here: the client's own, and the server's. The client's come first.
    sockets = []
    while True:
        try:
            sockets.append(socket.socket())
        except OSError:
            break
    for each in sockets[-6:]:  # as many as the clients below need: none is left for the server
        each.close()
    del sockets[-6:]
    for _ in range(6):
        try:
            kept.append(running.client())
        except OSError:
            refused += 1
    deadline = time.monotonic() + 60
    while not running.metrics.refused("descriptors") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert running.metrics.refused("descriptors"), "the server always had a descriptor"
    assert kept[0].ask_metadata(), "a client that was there is not served"
    for each in (*sockets, *(client.socket for client in kept[1:])):
        each.close()
    with running.client() as again:
        assert again.ask_metadata(), "no new client is served"
    kept[0].socket.close()
print("served again")
"""


def test_clients_are_served_again_after_a_lack_of_descriptors() -> None:
    """A moment without descriptors must not end the server, nor make it spin, nor harm the clients that are there."""
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "served again\n", done.stderr


def test_without_a_host_clients_come_by_ipv4_and_ipv6() -> None:
    """A server for all addresses that only some can reach; and each client must be told the address that it reached."""
    config = ServerConfig(host="", port=0)
    handler = MetadataHandler()
    with serving([handler], config) as running:
        hosts = ["127.0.0.1", *(["::1"] if socket.has_dualstack_ipv6() else [])]
        for host in hosts:
            with Client(host, running.port) as client:
                assert client.ask_metadata()
        assert [context.advertised_host for context in handler.contexts] == hosts
        assert [context.client_host for context in handler.contexts] == hosts


def test_descriptors_are_left_for_files() -> None:
    """A crowd of clients must not keep the server from reading what it serves."""
    script = (
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (80, 80))\n"
        "from tests.support.broker_servers import serving\n"
        "with serving() as running:\n"
        "    print(running.server.framed.acceptor._open_max)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "70\n", done.stderr


def test_descriptors_are_left_for_connections_to_brokers() -> None:
    """A front would take clients in whose broker it cannot reach, and could read neither bucket nor itself."""
    script = (
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (80, 80))\n"
        "from tests.support.fronts import ScriptedBroker, fronting\n"
        "with ScriptedBroker(lambda *_: None) as broker, fronting(broker.address) as (front, _):\n"
        "    print(front.server.front._framed.acceptor._open_max)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "35\n", done.stderr


@pytest.mark.parametrize(
    ("address", "host"),
    [(("127.0.0.1", 1), "127.0.0.1"), (("::ffff:10.0.0.1", 1, 0, 0), "10.0.0.1"), (("::1", 1, 0, 0), "::1")],
)
def test_an_address_is_named_as_clients_know_it(address: tuple[object, ...], host: str) -> None:
    """A client that reached an IPv4 address may not be told to connect to an IPv6 one."""
    assert host_of(address) == host
