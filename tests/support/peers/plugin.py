"""The Java plugin, where its jars are named: TIERLOG_PLUGIN_JARS, folders or jars."""

from __future__ import annotations

import base64
import os
import pathlib
import zipfile
from collections.abc import Mapping

from tests.support.peers import install

VARIABLE = "TIERLOG_PLUGIN_JARS"
MANAGER = "io.aiven.kafka.tieredstorage.RemoteStorageManager"
HOW = f"{VARIABLE} names no jars of the plugin (a folder of them, or several by ':'): nothing is set against it"


def jars() -> list[pathlib.Path]:
    """Those that TIERLOG_PLUGIN_JARS names, in the folders' order; none where it is not set."""
    found: list[pathlib.Path] = []
    for name in os.environ.get(VARIABLE, "").split(os.pathsep):
        if name:
            place = pathlib.Path(name)
            found += sorted(place.glob("*.jar")) if place.is_dir() else [place]
    return [path.absolute() for path in found]


def has_class(name: str) -> bool:
    """Whether one of the jars has a class: the plugin's storage backends come in jars of their own."""
    return any(f"{name.replace('.', '/')}.class" in zipfile.ZipFile(jar).namelist() for jar in jars())


def class_path() -> str:
    """The plugin's jars before Kafka's, which have the interface."""
    return os.pathsep.join([*map(str, jars()), install.class_path("kafka")])


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
