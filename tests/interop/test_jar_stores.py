"""Buckets of real servers through Spark and the jar: the rows of the folder that they were copied from."""

from __future__ import annotations

import pathlib
import re
import time
from collections.abc import Iterator

import pytest

from tests.support.fault_proxy import FaultProxy
from tests.support.golden import config_of
from tests.support.servers import StoreServer, as_abfss
from tests.support.spark_driver import answers_of, need_store_client
from tests.support.task_reader import Store, TaskReaderProcess, Unavailable
from tierlog import open_tier
from tierlog.errors import StoreError
from tierlog.runtime.stores.store_urls import address_store
from tierlog.scan.planning.plan import plan_scan
from tierlog.scan.reading.read import read_scan_range
from tierlog.scan.scan_request import ScanRequest, TopicSelection

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.spark]

INTEROP = pytest.mark.interop
SERVERS = ["s3", pytest.param("azure", marks=INTEROP), pytest.param("gcs", marks=INTEROP)]


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> StoreServer:
    found: StoreServer = request.getfixturevalue(request.param)
    return found


def test_a_bucket_gives_the_rows_of_its_folder(server: StoreServer, data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Ranges joined wrongly, or a key encoded twice, would lose or garble records of buckets alone."""
    pair = "rsm.config.encryption.key.pairs"
    keys = data / "keys" / "k1"
    config = tmp_path / "broker.properties"
    config.write_text(
        f"rsm.config.encryption.enabled=true\nrsm.config.encryption.key.pair.id=k1\n{pair}=k1\n"
        f"{pair}.k1.public.key.file={keys / 'public.der'}\n{pair}.k1.private.key.file={keys / 'private.der'}\n"
    )
    shared = {"subscribePattern": ".*", "includeHeaders": "true", "rsm.config.file": str(config)}
    requests = []
    for run in ("main-plain", "zstd-aes"):
        url = server.upload(data / run / "objects", f"jar/{run}")
        requests.append(shared | {"path": str(data / run / "objects"), "engine": "python"})
        requests.append(shared | dict(server.options) | {"path": url, "engine": "jar"})
    if server.url.startswith("az://"):
        path, options = as_abfss(server, url)
        requests += [shared | options | {"path": path, "engine": engine} for engine in ("python", "jar")]
    answers = answers_of(requests)
    assert [answer[0] for answer in answers] == [False, True] * (len(requests) // 2)
    for local, remote in zip(answers[::2], answers[1::2], strict=True):
        assert local[1:] == remote[1:]
        assert int(str(local[1])) > 0


@pytest.fixture(scope="module")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TaskReaderProcess]:
    need_store_client()
    try:
        process = TaskReaderProcess(tmp_path_factory.mktemp("jvm"))
    except Unavailable as error:
        pytest.skip(str(error))
    with process:
        yield process


@pytest.mark.parametrize("wrong", ["path", "secret"])
def test_a_masked_prefix_is_in_no_message(
    s3: StoreServer, jvm: TaskReaderProcess, data: pathlib.Path, wrong: str
) -> None:
    """What an operator hides by key.prefix.mask would be in executors' logs: the server's answers name whole keys."""
    run = data / "custom-meta"
    options = dict(s3.options) | ({"store.secret_access_key": "another"} if wrong == "secret" else {})
    config = config_of(run) | options
    with open_tier(str(run / "objects"), config=config_of(run)) as planned:
        ranges = plan_scan(planned, ScanRequest(TopicSelection.matching(".*"))).ranges
    url = f"{s3.url}/nothing-is-here"
    with open_tier(url, config=config, layout="aiven") as tier, pytest.raises(StoreError) as python:
        list(read_scan_range(tier, ranges[0]))
    address = address_store(url, options)
    store = Store(address.url, address.kind, tuple(address.options.items()))
    answer = jvm.read(ranges[:1], store, ("offset",))
    assert answer.error is not None
    assert answer.error[0] == type(python.value).__name__
    for text in (answer.error[1], str(python.value)):
        assert "<prefix>/fx-custom-" in text
        assert "dev-cluster" not in text
    if wrong == "path":
        # Each says how long ago the segment was written: a minute may begin between the two.
        texts = (answer.error[1], str(python.value))
        told = [re.sub(r"written .* ago", "written a while ago", text) for text in texts]
        assert told[0] == told[1]


@pytest.mark.parametrize("seconds", [1.0, 8.0, 30.0])
def test_a_store_that_throttles_is_waited_for(
    s3: StoreServer, jvm: TaskReaderProcess, data: pathlib.Path, seconds: float
) -> None:
    """One second of 503 would end a query: S3 throttles for as long as it splits a prefix."""
    url = s3.upload(data / "main-plain" / "objects", "jar/throttling")
    with open_tier(url, config=dict(s3.options)) as tier:
        ranges = plan_scan(tier, ScanRequest(TopicSelection.matching(".*"))).ranges
    with FaultProxy.before(s3) as proxy:
        rule = proxy.add("status", status=503, times=None, seconds=seconds)
        address = address_store(url, dict(s3.options) | {"store.endpoint": proxy.endpoint})
        began = time.monotonic()
        answer = jvm.read(ranges[:1], Store(address.url, address.kind, tuple(address.options.items())), ("offset",))
        took = time.monotonic() - began
    assert answer.error is None, answer.error
    assert rule.struck > 1
    assert seconds < took < seconds + 20


@pytest.mark.parametrize(
    ("status", "more"),
    [
        (403, {}),
        (503, {"store.retry_timeout": "300ms"}),
        (500, {"store.max_retries": "1"}),
    ],
)
def test_both_ways_say_the_same_of_a_store_that_refuses(
    s3: StoreServer, jvm: TaskReaderProcess, data: pathlib.Path, status: int, more: dict[str, str]
) -> None:
    """XML and the name of a provider would be told by one of them, and not which key waits longer."""
    url = s3.upload(data / "main-plain" / "objects", "jar/throttling")
    with FaultProxy.before(s3) as proxy:
        options = dict(s3.options) | {"store.endpoint": proxy.endpoint} | more
        address = address_store(url, options)
        with open_tier(url, config=options) as tier:
            ranges = plan_scan(tier, ScanRequest(TopicSelection.matching(".*"))).ranges
            proxy.add("status", status=status, times=None)
            with pytest.raises(StoreError) as python:
                list(read_scan_range(tier, ranges[0]))
        answer = jvm.read(ranges[:1], Store(address.url, address.kind, tuple(address.options.items())), ("offset",))
    assert answer.error is not None
    texts = [re.sub(r"tried \d+ times in \d\.\d s", "tried", text) for text in (answer.error[1], str(python.value))]
    assert texts[0] == texts[1]
    assert f"GET: status {status} " in texts[0]
    assert answer.error[0] == type(python.value).__name__
