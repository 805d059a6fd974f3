"""Fetches the peers once into a folder: Kafka's jars, Spark's Kafka source, and a virtual environment of its own.

Spark's Kafka source has no release for the newest Spark, so the Spark peers (and ours beside them) run on the pyspark
that it was built for, or on TIERLOG_PEER_SPARK, whose Kafka source is then the peer. Ours runs there from the
checkout's sources, with the native modules that are built in place.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
import tomllib
from collections.abc import Iterator

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PYSPARK = os.environ.get("TIERLOG_PEER_SPARK", "4.2.0")
#: The Python clients with all that makes them fast: without the package crc32c, kafka-python takes seconds a MiB.
PACKAGES = ["confluent-kafka", "aiokafka[lz4,snappy,zstd]", "kafka-python[crc32c,lz4,zstd]"]
#: Shown beside the numbers.
SHOWN = ["pyspark", "confluent-kafka", "aiokafka", "kafka-python", "crc32c", "cramjam", "lz4", "zstandard", "pyarrow"]


def home() -> pathlib.Path:
    """Where the peers live: TIERLOG_PEERS, else a folder of the user's cache."""
    chosen = os.environ.get("TIERLOG_PEERS")
    return pathlib.Path(chosen) if chosen else pathlib.Path.home() / ".cache" / "tierlog-peers"


def jars(name: str) -> pathlib.Path:
    """The folder of jars that ``name``.xml lists, fetched by Maven when it is not there yet or the list changed."""
    folder, listed = home() / name, HERE / f"{name}.xml"
    wanted = listed.read_text()
    if "${spark.version}" in wanted:
        folder, wanted = home() / f"{name}-{PYSPARK}", f"{wanted}{PYSPARK}"
    with _alone(folder):
        complete = folder / "complete"
        if not complete.exists() or complete.read_text() not in ("", wanted):
            for stale in folder.glob("*.jar"):
                stale.unlink()
            command = ["mvn", "-q", "-B", "-f", str(listed), f"-Dspark.version={PYSPARK}"]
            command.append("dependency:copy-dependencies")
            subprocess.run([*command, f"-DoutputDirectory={folder}"], check=True, stdin=subprocess.DEVNULL)
            complete.write_text(wanted)
    return folder


@contextlib.contextmanager
def _alone(folder: pathlib.Path) -> Iterator[None]:
    """Hold a folder against other processes that would install into it, too: they wait, and find it complete."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def class_path(name: str) -> str:
    return ":".join(str(jar) for jar in sorted(jars(name).glob("*.jar")))


def java() -> str:
    """The launcher: of JAVA_HOME, else of the path."""
    home_folder = os.environ.get("JAVA_HOME")
    return str(pathlib.Path(home_folder) / "bin" / "java") if home_folder else "java"


def python(pyspark: str = PYSPARK) -> pathlib.Path:
    """The interpreter of the bench environment: a pyspark, the Python peers, what we depend on."""
    folder = home() / f"venv-spark-{pyspark}"
    interpreter, complete = folder / "bin" / "python", folder / "complete"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ours = project["dependencies"] + project["optional-dependencies"]["encryption"]  # Spark reads sealed objects there
    packages = [f"pyspark[connect]=={pyspark}", "pandas>=2.2,<3", *PACKAGES, *ours]
    wanted = "".join(f"{package}\n" for package in packages)
    with _alone(folder):
        if not complete.exists() or complete.read_text() != wanted:
            if not interpreter.exists():
                subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
            subprocess.run([str(interpreter), "-m", "pip", "install", "-q", *packages], check=True)
            complete.write_text(wanted)
    return interpreter


def environment(pyspark: str = PYSPARK) -> dict[str, str]:
    """For processes of that interpreter: our sources first, and Spark's workers on the same interpreter."""
    interpreter = str(python(pyspark))
    sources = os.pathsep.join(str(ROOT / folder) for folder in ("", "engine", "bindings/spark"))
    return {**os.environ, "PYTHONPATH": sources, "PYSPARK_PYTHON": interpreter, "PYSPARK_DRIVER_PYTHON": interpreter}


def versions() -> dict[str, str]:
    """Package to version, of the bench environment, with the JVM."""
    program = f"import importlib.metadata as m, json; print(json.dumps({{n: m.version(n) for n in {SHOWN!r}}}))"
    told = subprocess.run([str(python()), "-c", program], check=True, stdout=subprocess.PIPE, text=True).stdout
    jvm = subprocess.run([java(), "-version"], check=True, stderr=subprocess.PIPE, text=True).stderr
    found: dict[str, str] = {**json.loads(told), "java": jvm.split('"')[1]}
    return {**found, "Kafka": kafka_version()}


def kafka_version() -> str:
    """Version of Kafka's jars."""
    return next(iter(jars("kafka").glob("kafka-storage-[0-9]*.jar"))).stem.rpartition("-")[2]


def version_here(name: str) -> str:
    """Version of a package in this environment; "absent" if it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "absent"
