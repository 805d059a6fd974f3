"""The environment's proxy of a host, for reading and writing alike: ``HTTPS_PROXY`` and its kin, ``NO_PROXY``."""

from __future__ import annotations

import urllib.request
from typing import NamedTuple


class AmbientProxy(NamedTuple):
    """A proxy, and the variable that names it (in capitals)."""

    variable: str
    url: str


def find_ambient_proxy(scheme: str, host: str) -> AmbientProxy | None:
    """The proxy by which requests to a host go; None for a host that is reached directly.

    Args:
        scheme: "http" or "https", of the URL that is asked.
        host: Without port; an IPv6 address without brackets.
    """
    if not host or urllib.request.proxy_bypass(host):
        return None
    proxies = urllib.request.getproxies()
    kind = scheme if proxies.get(scheme) else "all"
    found = proxies.get(kind)
    if not found:
        return None
    return AmbientProxy(f"{kind}_proxy".upper(), found if "://" in found else f"http://{found}")
