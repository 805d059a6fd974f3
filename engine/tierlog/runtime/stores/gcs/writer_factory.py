"""How a bucket of Google Cloud Storage is opened for writing."""

from __future__ import annotations

from typing import Final

from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.credentials.google import GoogleTokens
from tierlog.runtime.stores.gcs.faults import find_fault
from tierlog.runtime.stores.gcs.requests import GcsRequests, GcsSettings
from tierlog.runtime.stores.gcs.writer import GcsWriter
from tierlog.runtime.stores.protocol.request_counts import RequestCounts
from tierlog.runtime.stores.settings.options import StoreOptions
from tierlog.runtime.stores.writing.client_factory import make_client

_URL: Final = "https://storage.googleapis.com"


def make_gcs_writer(
    bucket: str,
    folder: str,
    name: str,
    options: StoreOptions,
    tokens: GoogleTokens,
    machine: Machine,
    counts: RequestCounts,
) -> GcsWriter:
    """The write half of a bucket; sends nothing yet."""
    config = options.config
    settings = GcsSettings(
        url=(config.get("base_url") or config.get("google_base_url") or _URL).rstrip("/"),
        bucket=bucket,
        folder=f"{folder}/" if folder else "",
        storage_class=options.storage_class,
        kms_key=options.encryption_key,
        turn_seconds=options.retry_timeout.total_seconds(),
    )
    client = make_client(name, options, find_fault, machine, counts, extra="gcs")
    return GcsWriter(GcsRequests(settings, client, tokens, machine))
