"""A proxy in front of a real store that breaks chosen requests in a chosen way.

It speaks HTTP/1.1 as far as it must to know where a request ends, and passes bytes on as they are, so that signatures
hold. A rule says which requests, how often, and what goes wrong:

    with FaultProxy.before(server) as proxy:
        proxy.add("status_after", verb="PUT", status=500, times=1)
        store = open_store(server.url, server.options | {"store.endpoint": proxy.endpoint})

    "reset"         the connection breaks after ``after_bytes`` of the request's body
    "stall"         nothing is answered until the proxy ends; the request does not reach the store
    "stall_after"   the store does it; nothing is answered
    "hold"          nothing is answered until the rule's ``release``; then the request reaches the store
    "status"        ``status`` at once (503, 429, 500 …); the request does not reach the store
    "status_after"  the store does it, and ``status`` is answered
    "lost"          the store does it, and the connection breaks without an answer
    "late"          the connection breaks; ``land_late`` sends the request to the store, whenever that is
    "truncate"      the answer ends after ``after_bytes`` of its body
    "wrong"         one bit of the answer's body is another
    "damage"        one bit of the request's body is another when it reaches the store
    "slow"          the answer's body trickles, ``after_bytes`` a second
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Self
from urllib.parse import urlsplit

from tests.support.servers import StoreServer
from tests.support.waiting import ENDLESS_STORE

KINDS: Final = (
    "reset",
    "stall",
    "stall_after",
    "hold",
    "status",
    "status_after",
    "lost",
    "late",
    "truncate",
    "wrong",
    "damage",
    "slow",
)
#: A store's own limits behind a proxy. A busy machine may hold a sound answer up for seconds: that is no fault …
PATIENT: Final = {"store.max_retries": "3", "store.retry_timeout": "1200s"} | ENDLESS_STORE
#: … and only where a request is not answered at all does its limit have to pass.
_STALLING: Final = {"store.timeout": "2s"}
#: A host that no resolver knows (RFC 6761): DNS is gone.
NO_SUCH_HOST: Final = "tierlog.invalid"
_HEAD_BYTES_MAX: Final = 1 << 16
_PIECE_BYTES: Final = 1 << 16
_S3_CODES: Final = {503: "SlowDown", 429: "SlowDown", 500: "InternalError", 403: "AccessDenied", 400: "ExpiredToken"}


def limits_for(kind: str, *, retries: int = 3) -> dict[str, str]:
    """The store's limits for a test of this kind of fault."""
    limits = PATIENT | (_STALLING if kind.startswith(("stall", "slow")) else {})
    return limits | {"store.max_retries": str(retries)}


@dataclass(slots=True)
class Seen:
    """One request that came, when its headers had."""

    verb: str
    path: str
    query: str
    body_bytes: int
    fault: str | None = None
    range: str = ""
    at_seconds: float = field(default_factory=time.monotonic)


@dataclass(slots=True)
class Rule:
    """What goes wrong with which requests.

    Args:
        verb: Of HTTP; None is any.
        path: A piece of the path and the query.
        ending: What the path ends with.
        times: How often; None is always.
        skip: So many that fit pass first.
        seconds: How long, from its first strike; None is always.
        code: S3's code in an answer of our own.
        headers: More of them in an answer of our own.
        then: Called when it strikes, before the client learns anything.

    Attributes:
        left: Clients that closed their connection while they were kept waiting.
    """

    kind: str
    verb: str | None = None
    path: str = ""
    times: int | None = 1
    skip: int = 0
    status: int = 503
    code: str | None = None
    after_bytes: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    then: Callable[[], object] | None = None
    ending: str = ""
    struck: int = 0
    left: int = 0
    seconds: float | None = None
    first_at: float | None = None
    released: threading.Event = field(default_factory=threading.Event)

    def release(self) -> None:
        """Requests that are held go on."""
        self.released.set()

    def wait_left(self, count: int, *, seconds: float = 60) -> None:
        """Until so many clients have gone."""
        deadline = time.monotonic() + seconds
        while self.left < count:
            assert time.monotonic() < deadline, f"{self.left} clients went, {count} expected"
            time.sleep(0.01)

    def takes(self, seen: Seen) -> bool:
        target = f"{seen.path}?{seen.query}"
        if self.verb not in (None, seen.verb) or self.path not in target or not seen.path.endswith(self.ending):
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self.times is not None and self.struck >= self.times:
            return False
        if self.seconds is not None:
            now = time.monotonic()
            self.first_at = now if self.first_at is None else self.first_at
            if now - self.first_at > self.seconds:
                return False
        self.struck += 1
        if self.then is not None:
            self.then()
        return True


class FaultProxy:
    """See the module. A context manager; its threads and connections end with it."""

    def __init__(self, host: str, port: int, *, at_port: int = 0) -> None:
        self._target = (host, port)
        self._lock = threading.Lock()
        self._rules: list[Rule] = []
        self._late: list[bytes] = []
        self._ended = threading.Event()
        self._connections: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self.seen: list[Seen] = []
        self._listener = socket.create_server(("127.0.0.1", at_port))
        self._listener.settimeout(0.05)
        self.port: int = self._listener.getsockname()[1]

    @classmethod
    def before(cls, server: StoreServer, *, at_port: int = 0) -> Self:
        """In front of a server's endpoint; at a free port by default."""
        place = urlsplit(server.options.get("store.endpoint") or server.options["store.base_url"])
        assert place.hostname is not None
        assert place.port is not None
        made = cls(place.hostname, place.port, at_port=at_port)
        made._base_path = place.path
        return made

    _base_path = ""

    @property
    def endpoint(self) -> str:
        """Instead of the server's."""
        return f"http://127.0.0.1:{self.port}{self._base_path}"

    def add(
        self,
        kind: str,
        *,
        verb: str | None = None,
        path: str = "",
        times: int | None = 1,
        skip: int = 0,
        status: int = 503,
        code: str | None = None,
        after_bytes: int = 0,
        headers: dict[str, str] | None = None,
        then: Callable[[], object] | None = None,
        ending: str = "",
        seconds: float | None = None,
    ) -> Rule:
        """One more rule; the first that fits a request strikes."""
        assert kind in KINDS, kind
        rule = Rule(kind, verb, path, times, skip, status, code, after_bytes, headers or {}, then, ending)
        rule.seconds = seconds
        with self._lock:
            self._rules.append(rule)
        return rule

    def clear(self) -> None:
        """No faults from here on."""
        with self._lock:
            self._rules.clear()

    def land_late(self) -> int:
        """Send what is late to the store, now; gives how many requests that were."""
        with self._lock:
            late, self._late = self._late, []
        for raw in late:
            with socket.create_connection(self._target, timeout=30) as store:
                store.sendall(raw)
                _Stream(store).answer(lambda _: None, head_only=raw.startswith(b"HEAD"))
        return len(late)

    def wait_for_strikes(self, rule: Rule, count: int, *, seconds: float = 60) -> None:
        """Until a rule has struck so often."""
        deadline = time.monotonic() + seconds
        while rule.struck < count:
            assert time.monotonic() < deadline, f"{rule.struck} requests were broken, {count} expected"
            time.sleep(0.01)

    def wait_for(self, count: int, *, verb: str | None = None, seconds: float = 60) -> None:
        """Until so many requests have come."""
        deadline = time.monotonic() + seconds
        while sum(verb in (None, each.verb) for each in list(self.seen)) < count:
            assert time.monotonic() < deadline, f"{len(self.seen)} requests came, {count} expected"
            time.sleep(0.01)

    def __enter__(self) -> Self:
        thread = threading.Thread(target=self._accept, name="fault-proxy")
        self._threads.append(thread)
        thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            _shut(connection)
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                client, _ = self._listener.accept()
            except TimeoutError:
                continue
            thread = threading.Thread(target=self._serve, args=(client,), name="fault-proxy-connection")
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        """One client's connection, and one to the store for it."""
        client.settimeout(60)
        with self._lock:
            self._connections.add(client)
        try:
            with socket.create_connection(self._target, timeout=60) as store:
                with self._lock:
                    self._connections.add(store)
                stream, back = _Stream(client), _Stream(store)
                while not self._ended.is_set() and self._one(stream, back):
                    pass
        except (OSError, ValueError):
            pass  # either side broke off: part of what is tested
        finally:
            with self._lock:
                self._connections.discard(client)
            client.close()

    def _one(self, client: _Stream, store: _Stream) -> bool:
        """One request and its answer; False where the connection ends."""
        head = client.head()
        if not head:
            return False
        verb, target, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
        path, _, query = target.partition("?")
        size = _length(head)
        seen = Seen(verb, path, query, size, range=_header(head, b"range"))
        with self._lock:
            rule = next((rule for rule in self._rules if rule.takes(seen)), None)
            seen.fault = rule.kind if rule else None
            self.seen.append(seen)
        if rule is None:
            return self._pass(client, store, head, size, verb, client.socket.sendall)
        return self._break(client, store, head, size, verb, rule)

    def _pass(
        self, client: _Stream, store: _Stream, head: bytes, size: int, verb: str, send: Callable[[bytes], object]
    ) -> bool:
        store.socket.sendall(head)
        client.pass_body(size, store.socket.sendall)
        return store.answer(send, head_only=verb == "HEAD")

    def _break(self, client: _Stream, store: _Stream, head: bytes, size: int, verb: str, rule: Rule) -> bool:
        kind = rule.kind
        if kind in ("reset", "stall", "late"):
            if kind == "reset":
                client.pass_body(min(rule.after_bytes, size), lambda _: None)
            else:
                taken = [head]
                client.pass_body(size, taken.append)
                if kind == "late":
                    with self._lock:
                        self._late.append(b"".join(taken))
                else:
                    self._keep_waiting(client.socket, rule)
            _reset(client.socket)
            return False
        if kind == "hold":
            if not self._keep_waiting(client.socket, rule):
                return False
            client.socket.settimeout(60)
            return self._pass(client, store, head, size, verb, client.socket.sendall)
        if kind == "status":
            client.pass_body(size, lambda _: None)
            client.socket.sendall(_own_answer(rule, verb))
            return True
        if kind in ("status_after", "stall_after", "lost"):
            self._pass(client, store, head, size, verb, lambda _: None)
            if kind == "status_after":
                client.socket.sendall(_own_answer(rule, verb))
                return True
            if kind == "stall_after":
                self._keep_waiting(client.socket, rule)
            _reset(client.socket)
            return False
        if kind == "damage":
            store.socket.sendall(head)
            body: list[bytes] = []
            client.pass_body(size, body.append)
            bent = bytearray(b"".join(body))
            bent[len(bent) // 2] ^= 4
            store.socket.sendall(bent)
            return store.answer(client.socket.sendall, head_only=False)
        return self._pass(client, store, head, size, verb, _Bent(client.socket, rule, self._ended).send)

    def _keep_waiting(self, client: socket.socket, rule: Rule) -> bool:
        """Until the client goes, the rule is released, or the proxy ends; a minute at most. Whether it was released."""
        client.settimeout(0.02)
        for _ in range(3000):
            if self._ended.is_set():
                return False
            if rule.released.is_set():
                return True
            try:
                gone = not client.recv(1, socket.MSG_PEEK)
            except TimeoutError:
                continue
            except OSError:
                gone = True
            if gone:
                rule.left += 1
                return False
            time.sleep(0.02)
        return False


class _Bent:
    """An answer that is cut, changed or slow."""

    def __init__(self, client: socket.socket, rule: Rule, ended: threading.Event) -> None:
        self._client = client
        self._rule = rule
        self._ended = ended
        self._head = True
        self._sent = 0

    def send(self, piece: bytes) -> None:
        if self._head:
            self._head = False
            self._client.sendall(piece)
            return
        if self._rule.kind == "truncate":
            left = self._rule.after_bytes - self._sent
            self._client.sendall(piece[: max(left, 0)])
            self._sent += len(piece)
            if self._sent > self._rule.after_bytes:
                _shut(self._client)
                raise OSError("cut")
        elif self._rule.kind == "wrong":
            bent = bytearray(piece)
            if not self._sent and bent:
                bent[len(bent) // 2] ^= 4
            self._sent += len(piece)
            self._client.sendall(bent)
        else:
            step = max(1, self._rule.after_bytes // 20)
            for start in range(0, len(piece), step):
                try:
                    self._client.sendall(piece[start : start + step])
                except OSError:
                    self._rule.left += 1
                    raise
                if self._ended.wait(0.05):
                    raise OSError("ended")


class _Stream:
    """Bytes of one side, with what was read too far."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._left = b""

    def _read(self) -> bytes:
        if self._left:
            piece, self._left = self._left, b""
            return piece
        return self.socket.recv(_PIECE_BYTES)

    def head(self) -> bytes:
        """The first line and the headers, with the empty line; nothing at the end of the connection."""
        found = b""
        while b"\r\n\r\n" not in found:
            piece = self._read()
            if not piece:
                return b""
            found += piece
            if len(found) > _HEAD_BYTES_MAX:
                raise ValueError("headers without an end")
        head, _, self._left = found.partition(b"\r\n\r\n")
        return head + b"\r\n\r\n"

    def pass_body(self, size: int, send: Callable[[bytes], object]) -> None:
        """So many bytes."""
        while size:
            piece = self._read()
            if not piece:
                raise OSError("ended within a body")
            part, self._left = piece[:size], piece[size:]
            size -= len(part)
            send(part)

    def answer(self, send: Callable[[bytes], object], *, head_only: bool) -> bool:
        """Pass one answer on; False where the connection ends with it."""
        head = self.head()
        if not head:
            raise OSError("no answer")
        send(head)
        status = int(head.split(b" ", 2)[1])
        lower = head.lower()
        if head_only or status in (204, 304):
            return b"connection: close" not in lower
        if b"transfer-encoding: chunked" in lower:
            self._pass_chunks(send)
        elif b"content-length:" in lower:
            self.pass_body(_length(head), send)
        else:
            while piece := self._read():
                send(piece)
            return False
        return b"connection: close" not in lower

    def _pass_chunks(self, send: Callable[[bytes], object]) -> None:
        while True:
            line = b""
            while not line.endswith(b"\r\n"):
                piece = self._read()
                if not piece:
                    raise OSError("ended within a chunk")
                line += piece[:1]
                self._left = piece[1:] + self._left
            size = int(line.split(b";")[0], 16)
            send(line)
            self.pass_body(size + 2, send)
            if not size:
                return


def _length(head: bytes) -> int:
    return int(_header(head, b"content-length") or 0)


def _header(head: bytes, wanted: bytes) -> str:
    """Its value; empty if it is not there."""
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == wanted:
            return value.strip().decode("latin-1")
    return ""


def _own_answer(rule: Rule, verb: str) -> bytes:
    code = rule.code or _S3_CODES.get(rule.status, "Injected")
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>injected</Message></Error>".encode()
    headers = {"Content-Type": "application/xml", "Content-Length": str(len(body)), **rule.headers}
    told = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {rule.status} Injected\r\n{told}\r\n".encode() + (b"" if verb == "HEAD" else body)


def _reset(connection: socket.socket) -> None:
    """End it with RST, not FIN."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def _shut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # closed already
