"""The figures of a sidecar and of its storage manager, as attributes of MBeans for the JVM that asks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from tierlog.sidecar.protocol import PIECE_BYTES_MAX

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_DOMAIN: Final = "io.tierlog"
#: Of a sample's name; what a scrape needs beside the figure.
_LEFT_OUT: Final = ("_created", "_bucket")


def encode_mbeans(registries: Mapping[str, CollectorRegistry]) -> bytes:
    """Encode the MBeans as JSON. Those of partitions are left out where all together are too much for one answer.

    Args:
        registries: As of ``mbeans_of``.

    Cost: some seconds, where there are thousands of partitions.
    """
    found = mbeans_of(registries)
    data = json.dumps(found).encode()
    if len(data) <= PIECE_BYTES_MAX:
        return data
    return json.dumps({name: each for name, each in found.items() if ",partition=" not in name}).encode()


def mbeans_of(registries: Mapping[str, CollectorRegistry]) -> Mapping[str, Mapping[str, float]]:
    """Return the attributes of each MBean, by its object name.

    Args:
        registries: By the MBean's type; a sample's labels are further keys of its name.
    """
    found: dict[str, dict[str, float]] = {}
    for kind, registry in registries.items():
        for name, labels, value in _samples(registry):
            tags = "".join(f",{label}={_quoted(text)}" for label, text in labels)
            found.setdefault(f"{_DOMAIN}:type={kind}{tags}", {})[name] = value
    return found


def _samples(registry: CollectorRegistry) -> Iterator[tuple[str, Iterable[tuple[str, str]], float]]:
    for family in registry.collect():
        for sample in family.samples:
            if not sample.name.endswith(_LEFT_OUT):
                yield sample.name, sample.labels.items(), sample.value


def _quoted(text: str) -> str:
    """As ObjectName.quote does where a value has other characters than a name."""
    if text and all(character.isalnum() or character in "-._" for character in text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("*", "\\*").replace("?", "\\?")
    return '"' + escaped.replace("\n", "\\n") + '"'
