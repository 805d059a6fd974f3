"""Kafka's own integration tests of tiered storage, with the plugin in the place of their storage manager."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
import zipfile

import pytest

from tests.support.checkout import ROOT, needs_checkout
from tests.support.command import environment
from tests.support.peers import install
from tests.support.peers.plugin_peer import our_jar
from tests.support.sidecars import storage_keys

pytestmark = [pytest.mark.interop, pytest.mark.slow, needs_checkout]

JARS = "kafka-tiered-tests"
SOURCES = ROOT / "bindings" / "kafka" / "src" / "tiered-tests" / "java"
PACKAGE = "org.apache.kafka.tiered.storage.integration"
#: Superclasses of others, with no test of their own.
ABSTRACT = {"BaseDeleteSegmentsTest", "BaseReassignReplicaTest"}
CLASSES = [
    "AlterLogDirTest",
    "DeleteSegmentsByRetentionSizeTest",
    "DeleteSegmentsByRetentionTimeTest",
    "DeleteSegmentsDueToLogStartOffsetBreachTest",
    "DeleteTopicTest",
    "DisableRemoteLogOnTopicTest",
    "EnableRemoteLogOnTopicTest",
    "FetchFromLeaderWithCorruptedCheckpointTest",
    "ListOffsetsTest",
    "OffloadAndConsumeFromLeaderTest",
    "OffloadAndTxnConsumeFromLeaderTest",
    "PartitionsExpandTest",
    "ReassignReplicaExpandTest",
    "ReassignReplicaMoveTest",
    "ReassignReplicaShrinkTest",
    "RollAndOffloadActiveSegmentTest",
    "TransactionsWithTieredStoreTest",
]


@pytest.fixture(scope="module")
def kafka() -> str:
    """The class path of Kafka's tests, without ours."""
    if shutil.which("mvn") is None or shutil.which("java") is None:
        pytest.skip("Kafka's jars are fetched by Maven, and need a JVM")
    return install.class_path(JARS)


@pytest.fixture(scope="module")
def with_plugin(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The class path with our LocalTieredStorage, compiled, before Kafka's own."""
    classes = tmp_path_factory.mktemp("classes")
    path = f"{our_jar()}:{kafka}"
    javac = pathlib.Path(shutil.which(install.java()) or "java").with_name("javac")
    lint = ["-Xlint:all,-processing,-classfile,-serial,-path", "-Werror", "--release", "17"]
    sources = map(str, SOURCES.rglob("*.java"))
    subprocess.run([str(javac), *lint, "-cp", path, "-d", str(classes), *sources], check=True)
    return f"{classes}:{path}"


def keys(data: pathlib.Path) -> dict[str, str]:
    """Each segment takes some chunks, which are compressed, encrypted and cached."""
    made = storage_keys(
        pathlib.Path("/each/test/has/its/own"),
        chunk_size="64",
        compression_enabled="true",
        encryption_enabled="true",
        encryption_key_pair_id="k1",
        encryption_key_pairs="k1",
        fetch_chunk_cache_class="memory",
        fetch_chunk_cache_size=str(16 << 20),
        tierlog_python=sys.executable,
    )
    for kind in ("public", "private"):
        made[f"encryption.key.pairs.k1.{kind}.key.file"] = str(data / "keys" / "k1" / f"{kind}.der")
    return made


def run(name: str, class_path: str, report: pathlib.Path, *options: str) -> dict[str, str | None]:
    """Run a class by JUnit's console: each test, and what it failed with.

    All that Kafka and a sidecar make lies in a folder of its own, whose path is short enough for a socket's.
    """
    with tempfile.TemporaryDirectory(prefix="kafka") as temporary:
        command = [install.java(), "-Xmx2g", f"-Djava.io.tmpdir={temporary}", *options, "-cp", class_path]
        command += ["org.junit.platform.console.ConsoleLauncher", "execute", "--details", "none", "--disable-banner"]
        command += ["--select-class", f"{PACKAGE}.{name}", "--reports-dir", str(report)]
        with (report.parent / f"{report.name}.txt").open("wb") as said:
            subprocess.run(
                command, cwd=temporary, env=environment(), stdout=said, stderr=subprocess.STDOUT, check=False
            )
    return results(report / "TEST-junit-jupiter.xml")


def results(report: pathlib.Path) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for case in ET.parse(report).getroot().iter("testcase"):
        failures = [each.text or each.tag for each in case if each.tag in ("failure", "error", "skipped")]
        found[case.get("name", "")] = failures[0] if failures else None
    return found


def test_no_class_is_left_out(kafka: str) -> None:
    """If this fails, Kafka has a test of tiered storage that nobody runs here."""
    [jar] = [path for path in kafka.split(":") if "/kafka-storage-" in path and path.endswith("-test.jar")]
    folder = PACKAGE.replace(".", "/") + "/"
    with zipfile.ZipFile(jar) as opened:
        names = {name.removeprefix(folder) for name in opened.namelist() if name.startswith(folder)}
    tests = {name.removesuffix(".class") for name in names if name.endswith("Test.class") and "$" not in name}
    assert tests == {*CLASSES, *ABSTRACT}


@pytest.mark.parametrize("name", CLASSES)
def test_kafkas_own_tests(name: str, kafka: str, with_plugin: str, data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """If this fails, the plugin does otherwise than Kafka's makers mean a storage manager to do.

    Some count the fetches of a read, and a broker on a busy machine makes one more: what failed is run again, as
    Kafka's own build does. What then fails with Kafka's own storage manager, too, tells nothing of ours.
    """
    settings = tmp_path / "plugin.properties"
    settings.write_text("".join(f"{key}={value}\n" for key, value in keys(data).items()))
    failed: dict[str, str | None] = {}
    for attempt in ("first", "second"):
        told = run(name, with_plugin, tmp_path / attempt, f"-Dtierlog.tiered.keys={settings}")
        assert told
        failed = {test: why for test, why in told.items() if why is not None and (attempt == "first" or test in failed)}
        if not failed:
            return
    theirs = run(name, kafka, tmp_path / "theirs")
    assert {test: why for test, why in failed.items() if theirs.get(test) is None} == {}
