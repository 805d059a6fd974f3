"""Frames in memory that the handler may write into."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

import pytest

from tests.support.loops import run_on
from tierlog.log.local import LogDirectory
from tierlog.records.builder import RecordBatchBuilder
from tierlog.runtime.machine import Machine
from tierlog.runtime.waiting.loops import Worker
from tierlog.serving.admission import RequestMemory
from tierlog.serving.connection import SCRATCH_BYTES, Client
from tierlog.serving.metrics import REFUSALS, ServingMetrics
from tierlog.serving.refusals import Refusals
from tierlog.serving.response_writer import Reply
from tierlog.serving.server import FramedServer
from tierlog.serving.serving_config import ServingConfig

#: What stands before the records, as in a Produce request: the append begins in the midst of the frame.
_HEAD = b"some fields"


@pytest.mark.parametrize("value_bytes", [10, 100_000])
def test_an_append_assigns_offsets_in_the_frame_itself(value_bytes: int, tmp_path: Path) -> None:
    """If this fails, a broker copies the records of each Produce before it appends them: of short frames, or of long
    ones, which are received in other memory.
    """
    builder = RecordBatchBuilder(0)
    builder.append(b"key", bytes(value_bytes), timestamp_ms=1)
    batch = bytes(builder.build())

    async def main() -> None:
        machine = Machine()
        worker = Worker(machine.scheduler.pool(1, name="test-frames"), machine)
        with LogDirectory.open(str(tmp_path / "logs")) as directory:
            log = directory.log("orders", 0)

            async def answer(_client: Client, frame: memoryview) -> Reply:
                records = frame[len(_HEAD) :]
                log.append_as_leader(records, leader_epoch=0)
                return Reply((struct.pack(">i", 8), records[:8]), 12)  # the base offset, as it was assigned

            server = FramedServer(
                ServingConfig(host="127.0.0.1", port=0),
                machine,
                new_client=lambda host, number, _: Client(host, number),
                answer=answer,
                memory=RequestMemory(-1, small_bytes=SCRATCH_BYTES),
                refusals=Refusals(machine),
                metrics=ServingMetrics("test_", REFUSALS),
                worker=worker,
            )
            reader, writer = await asyncio.open_connection(*await server.start())
            frame = struct.pack(">i", len(_HEAD) + len(batch)) + _HEAD + batch
            for offset in range(3):
                writer.write(frame)
                assert struct.unpack(">iq", await reader.readexactly(12)) == (8, offset)
            writer.close()
            await writer.wait_closed()
            await server.stop()
        worker.close()

    run_on("uvloop", main)
