"""From options to the client that the write half sends through."""

from __future__ import annotations

from tierlog._extras import require_extra
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.protocol.request_counts import RequestCounts
from tierlog.runtime.stores.settings.options import StoreOptions
from tierlog.runtime.stores.writing.bucket_client import BucketClient
from tierlog.runtime.stores.writing.faults import FaultReader
from tierlog.runtime.stores.writing.http_client import HttpAnswer, HttpClient, HttpRequest, HttpSettings
from tierlog.runtime.stores.writing.retrying import RetryPolicy


def make_client(
    name: str,
    options: StoreOptions,
    find_fault: FaultReader,
    machine: Machine,
    counts: RequestCounts,
    *,
    extra: str,
) -> BucketClient:
    """A client with the limits and the trust of obstore's.

    Args:
        name: URL of the store.
        options: Its time limits, certificates and proxy.
        find_fault: Reads the errors of the cloud.
        machine: Its threads.
        counts: Of its requests.
        extra: Of the packages that writing there takes.

    Raises:
        ConfigError: the packages are not installed.
    """
    policy = RetryPolicy(options.max_retries, options.retry_timeout.total_seconds())
    return BucketClient(name, _make_http(name, options, machine, extra), find_fault, policy, machine, counts)


def ask_once(name: str, options: StoreOptions, machine: Machine, url: str, *, extra: str) -> HttpAnswer:
    """The answer to one GET without a signature, whatever it is; a redirect is not followed.

    Args:
        name: URL of the store.
        options: Its time limits, certificates and proxy.
        machine: Its threads.
        url: Encoded.
        extra: Of the packages that this takes.

    Raises:
        ConfigError: the packages are not installed. StoreError and its kinds: no answer.
    """
    http = _make_http(name, options, machine, extra)
    try:
        return http.send(HttpRequest("GET", url))
    finally:
        http.close()


def _make_http(name: str, options: StoreOptions, machine: Machine, extra: str) -> HttpClient:
    require_extra(extra, f"{name}: writing there")
    client = options.client
    proxy_url = client.get("proxy_url")
    if proxy_url is not None and proxy_url.startswith("socks"):
        require_extra("socks", f"{name}: writing through a SOCKS proxy")
    settings = HttpSettings(
        timeout_seconds=options.timeout_seconds,
        connect_seconds=options.connect_seconds,
        check_certificates=client.get("allow_invalid_certificates", "false").lower() != "true",
        root_certificate=client.get("root_certificate"),
        proxy_url=proxy_url,
        user_agent=client.get("user_agent", "tierlog"),
    )
    return HttpClient(settings, machine.scheduler, name=name.partition(":")[0])
