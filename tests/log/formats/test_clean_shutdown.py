"""``.kafka_cleanshutdown``."""

from __future__ import annotations

import pytest

from tierlog.log.formats.clean_shutdown import encode_clean_shutdown, parse_clean_shutdown


@pytest.mark.parametrize(
    ("data", "broker_epoch"),
    [
        (b"", None),
        (b'{"version":0,"brokerEpoch":10}', 10),
        (b'{"version":1,"brokerEpoch":10,"x":[1]}', 10),
        (b'{"brokerEpoch":-7} x', -7),
        (b'{"version":0}', None),
        (b'{"version":0,"brokerEpoch":"10"}', 10),
        (b'{"version":0,"brokerEpoch":10.5}', 10),
        (b'{"version":0,"brokerEpoch":null}', None),
        (b'{"version":0,"brokerEpoch":true}', None),
        (b'{"version":0,"brokerEpoch":99999999999999999999}', None),
        (b'{"version":0,"brokerEpoch":1e400}', None),
        (b"[]", None),
        (b"5", None),
        (b"\xff", None),
        (b"[" * 4000, None),
        (b"9" * 4097, None),
    ],
)
def test_what_kafka_reads_in_it(data: bytes, broker_epoch: int | None) -> None:
    """Else a broker that comes back tells the controller an epoch that it never had, or does not start."""
    assert parse_clean_shutdown(data) == broker_epoch


def test_written_as_kafka_does() -> None:
    """Else Kafka cannot read the epoch of what we closed."""
    assert encode_clean_shutdown(10) == b'{"version":0,"brokerEpoch":10}'
    assert encode_clean_shutdown() == b'{"version":0,"brokerEpoch":-1}'
