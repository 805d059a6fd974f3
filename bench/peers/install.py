"""Fetches the peers once into a folder: Kafka's jars, Spark's Kafka source, and a virtual environment of its own.

Spark's Kafka source has no release for the newest Spark, so the Spark peers (and ours beside them) run on the pyspark
that it was built for.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
PYSPARK = "4.2.0"
PACKAGES = ["confluent-kafka", "aiokafka", "kafka-python", "crc32c", "google-crc32c", "lz4", "zstandard"]


def home() -> pathlib.Path:
    """Where the peers live: TIERLOG_PEERS, else a folder of the user's cache."""
    chosen = os.environ.get("TIERLOG_PEERS")
    return pathlib.Path(chosen) if chosen else pathlib.Path.home() / ".cache" / "tierlog-peers"


def jars(name: str) -> pathlib.Path:
    """The folder of jars that ``name``.xml lists, fetched by Maven when it is not there yet."""
    folder = home() / name
    if not (folder / "complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = ["mvn", "-q", "-B", "-f", str(HERE / f"{name}.xml"), "dependency:copy-dependencies"]
        subprocess.run([*command, f"-DoutputDirectory={folder}"], check=True, stdin=subprocess.DEVNULL)
        (folder / "complete").touch()
    return folder


def class_path(name: str) -> str:
    return ":".join(str(jar) for jar in sorted(jars(name).glob("*.jar")))


def python(source: pathlib.Path | str) -> pathlib.Path:
    """The interpreter of the bench environment: pyspark of the peers' version, the Python peers, and ``source``."""
    folder = home() / f"venv-spark-{PYSPARK}"
    interpreter = folder / "bin" / "python"
    if not (folder / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        packages = [f"pyspark=={PYSPARK}", "pandas>=2.2,<3", *PACKAGES]
        subprocess.run([str(interpreter), "-m", "pip", "install", "-q", *packages], check=True)
        (folder / "complete").touch()
    subprocess.run([str(interpreter), "-m", "pip", "install", "-q", str(source)], check=True)
    return interpreter
