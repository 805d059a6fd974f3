"""The Java plugin as a side of :mod:`bench.turns`, where its jars are named: TIERLOG_PLUGIN_JARS, folders or jars."""

from __future__ import annotations

import base64
import contextlib
import os
import pathlib
from collections.abc import Iterator, Mapping

from bench.peers import install
from bench.turns import Side, started

VARIABLE = "TIERLOG_PLUGIN_JARS"
MANAGER = "io.aiven.kafka.tieredstorage.RemoteStorageManager"
HEAP = "2g"
HOW = f"{VARIABLE} names no jars of the plugin (a folder of them, or several by ':'): nothing is set against it"


def jars() -> list[pathlib.Path]:
    """Those that TIERLOG_PLUGIN_JARS names, in the folders' order; none where it is not set."""
    found: list[pathlib.Path] = []
    for name in os.environ.get(VARIABLE, "").split(os.pathsep):
        if name:
            place = pathlib.Path(name)
            found += sorted(place.glob("*.jar")) if place.is_dir() else [place]
    return [path.absolute() for path in found]


def class_path() -> str:
    """The plugin's jars before Kafka's, which have the interface."""
    return os.pathsep.join([*map(str, jars()), install.class_path("kafka")])


@contextlib.contextmanager
def plugin(segment_file: str) -> Iterator[Side]:
    """A JVM of its own until the block ends."""
    java = [install.java(), f"-Xmx{HEAP}", "-XX:+UseG1GC", "-cp", class_path()]
    with started("the plugin", [*java, str(install.HERE / "PluginTurns.java"), segment_file, MANAGER]) as side:
        yield side


def with_pem_keys(keys: Mapping[str, str], folder: pathlib.Path) -> dict[str, str]:
    """The same keys with key files in PEM, the one form that the plugin reads."""
    made = dict(keys)
    for name, value in keys.items():
        if name.endswith((".public.key.file", ".private.key.file")):
            kind = "PUBLIC" if ".public." in name else "PRIVATE"
            text = base64.encodebytes(pathlib.Path(value).read_bytes()).decode()
            path = folder / f"{kind.lower()}.pem"
            path.write_text(f"-----BEGIN {kind} KEY-----\n{text}-----END {kind} KEY-----\n")
            path.chmod(0o600)
            made[name] = str(path)
    return made
