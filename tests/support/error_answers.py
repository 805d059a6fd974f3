"""What Kafka answers to a request of each API in the midst of SASL authentication."""

from __future__ import annotations

import datetime
import json
import pathlib
import uuid
from typing import Any, Final

from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from tests.support.broker_servers import Client
from tests.support.kafka_entities import kio_bytes
from tierlog.broker.protocol.fields import Shape, WireField, wire_fields

#: API and version ("3.12") -> the answer of a Kafka 4.3.1 to ``ask_out_of_order``, in base 16, from the correlation id
#: on. ``tests/interop/test_sasl_order.py`` compares them with a broker's.
RECORDED: Final = pathlib.Path(__file__).parents[1] / "broker" / "server" / "security" / "kafka_error_answers.json"
_VALUES: Final[dict[str, Any]] = {
    "string": "x",
    "bytes": b"",
    "records": b"",
    "uuid": uuid.UUID(int=7),
    "bool": False,
    "timedelta_i32": datetime.timedelta(milliseconds=1),
    "timedelta_i64": datetime.timedelta(milliseconds=1),
    "error_code": ErrorCode.none,
    "float64": 1.0,
}


def recorded() -> dict[tuple[int, int], bytes]:
    found = json.loads(RECORDED.read_text())
    return {
        (int(key), int(version)): bytes.fromhex(data)
        for (key, version), data in ((name.split("."), data) for name, data in found.items())
    }


def request_about_one(api_key: int, version: int) -> Any:
    """A request with one element in each of its arrays."""
    return _made(load_request_schema(api_key, version))


def _made(entity: Any) -> Any:
    return entity(**{field.name: _value(field) for field in wire_fields(entity) if field.tag is None})


def _value(field: WireField) -> Any:
    one = _made(field.entity) if field.entity is not None else _VALUES.get(field.kafka_type, 1)
    return (one,) if field.shape is Shape.ARRAY else one


def ask_out_of_order(client: Client, api_key: int, version: int) -> bytes:
    """The answer to a request between SaslHandshake and SaslAuthenticate, behind which the connection is closed."""
    client.send_request(17, 1, b"\0\5PLAIN")
    client.read_frame()
    request = request_about_one(api_key, version)
    client.send_request(api_key, version, kio_bytes(request), flexible=bool(type(request).__flexible__))
    answer = client.read_frame()
    assert client.is_closed()
    return answer
