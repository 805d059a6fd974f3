"""A client of the groups' handlers without a server in between: requests and answers go through their bytes."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

from kio.index import load_payload_module, load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from tests.support.fixed_catalog import FixedCatalog
from tests.support.group_rig import SUBSCRIPTION, Rig
from tests.support.loops import run_on
from tierlog.broker.groups.group_config import GroupConfig
from tierlog.broker.groups.group_handlers import group_handlers
from tierlog.broker.handling import Handler, RequestContext, may_read_all
from tierlog.broker.partitions import Topic
from tierlog.broker.protocol.requests import RequestHeader, read_body
from tierlog.broker.protocol.responses import encode_response
from tierlog.remote.api import ZERO_UUID, Uuid

ORDERS = Topic("orders", Uuid(bytes(range(16))), (0, 1, 3))
NO_ID = Topic("no-id", ZERO_UUID, (0,))
JOIN, HEARTBEAT, LEAVE, SYNC, FIND = 11, 12, 13, 14, 10
COMMIT, FETCH, DELETE_OFFSETS, LIST, DESCRIBE, DELETE = 8, 9, 47, 16, 15, 42
NONE = ErrorCode.none


class Wire:
    """A client of the handlers, without a server in between.

    Attributes:
        rig: The coordinator below.
        may_read: Which topics the client may read.
    """

    def __init__(self, config: GroupConfig | None = None) -> None:
        self.may_read: Callable[[str], bool] = may_read_all
        self.rig = Rig(config or GroupConfig(initial_rebalance_delay_ms=100))
        self.catalog = FixedCatalog(ORDERS, NO_ID)
        handlers = group_handlers(self.rig.coordinator, self.catalog, self.rig.clock, node_id=3)
        self.handlers: dict[int, Handler] = {handler.api_key: handler for handler in handlers}

    async def ask(self, api_key: int, version: int, **fields: Any) -> Any:
        """The answer to a request; both go through their bytes."""
        header = RequestHeader(api_key, version, 5, "client", 0)
        request = read_body(header, memoryview(request_bytes(api_key, version, fields)))
        return await self.answer(api_key, version, request)

    async def answer(self, api_key: int, version: int, request: Any) -> Any:
        """The answer to a request, through its bytes."""
        handler = self.handlers[api_key]
        assert version in handler.versions
        header = RequestHeader(api_key, version, 5, "client", 0)
        context = RequestContext(
            version, "client", "User:ANONYMOUS", "10.0.0.1", 1, "replica.example", 9092, self.may_read
        )
        answering = asyncio.ensure_future(handler.handle(request, context))
        try:
            for _ in range(10_000):
                if answering.done():
                    break
                await asyncio.sleep(0)
                self.rig.advance(0.05)
        finally:
            answering.cancel()  # as a server does for a client that has gone
        encoded = bytes(encode_response(header, answering.result()))
        return response_of(api_key, version, encoded)

    async def stable(self, version: int = 9, **fields: Any) -> tuple[Any, Any]:
        """One member in a stable group: its join, and its assignment, each as answered."""
        joined = await self.join(version, **fields)
        sync_version = {9: 5, 7: 5, 6: 4, 5: 3}.get(version, min(version, 2))
        synced = await self.ask(
            SYNC,
            sync_version,
            group_id="readers",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=({"member_id": joined.member_id, "assignment": b"mine"},),
        )
        return joined, synced

    async def join(self, version: int, **fields: Any) -> Any:
        wanted: dict[str, Any] = {
            "group_id": "readers",
            "session_timeout": timedelta(seconds=10),
            "rebalance_timeout": timedelta(seconds=60),
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": ({"name": "range", "metadata": SUBSCRIPTION}, {"name": "range", "metadata": b"twice"}),
            "reason": "a test",
        } | fields
        answer = await self.ask(JOIN, version, **wanted)
        if answer.error_code is ErrorCode.member_id_required:
            assert version >= 4
            answer = await self.ask(JOIN, version, **(wanted | {"member_id": answer.member_id}))
        return answer


def request_bytes(api_key: int, version: int, fields: dict[str, Any]) -> bytes:
    module = load_payload_module(api_key, version, EntityType.request)
    out = io.BytesIO()
    schema = load_request_schema(api_key, version)
    entity_writer(schema)(out, build(module, schema, fields))
    return out.getvalue()


def build(module: Any, entity: Any, fields: dict[str, Any]) -> Any:
    """An entity of kio's; dicts within become those that their field asks for. Fields of other versions go."""
    values = {}
    for name, field in entity.__dataclass_fields__.items():
        if name not in fields:
            continue
        value = fields[name]
        if isinstance(value, tuple) and value and isinstance(value[0], dict):
            inner = next(
                getattr(module, part)
                for part in str(field.type).replace("[", " ").replace(",", " ").split()
                if hasattr(module, part.rsplit(".", 1)[-1])
                for part in [part.rsplit(".", 1)[-1]]
            )
            value = tuple(build(module, inner, each) for each in value)
        values[name] = value
    return entity(**values)


def response_of(api_key: int, version: int, encoded: bytes) -> Any:
    assert int.from_bytes(encoded[:4]) == len(encoded) - 4
    assert int.from_bytes(encoded[4:8]) == 5
    schema = load_response_schema(api_key, version)
    is_flexible = schema.__flexible__
    answer, size = entity_reader(schema)(memoryview(encoded), 8 + is_flexible)
    assert 8 + is_flexible + size == len(encoded)
    return answer


def on_loop(test: Callable[[Wire], Coroutine[Any, Any, None]], config: GroupConfig | None = None) -> None:
    async def main() -> None:
        await test(Wire(config))

    run_on("uvloop", main)
