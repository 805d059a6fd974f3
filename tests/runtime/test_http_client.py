"""What the client of writes leaves behind when a request is over."""

from __future__ import annotations

import gc
import uuid
from collections.abc import Iterator

import pytest

from tests.support.servers import StoreServer
from tierlog.runtime.store_opening import open_store

pytestmark = pytest.mark.server


@pytest.fixture
def no_collector() -> Iterator[None]:
    """As between two runs of the collector, which in a process that lies idle may be hours apart."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_a_body_is_let_go_with_its_request(s3: StoreServer, no_collector: None) -> None:
    """Buffers of uploads would stay mapped behind the back of their budget, one for each request."""
    body = bytearray(100_000)
    store = open_store(f"{s3.url}/http/{uuid.uuid4()}", s3.options)
    store.put("k", memoryview(body))
    body.append(0)  # a BufferError if anybody has a view of it
    store.close()
