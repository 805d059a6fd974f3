"""Buckets of S3, Google Cloud Storage and Azure, and those in memory, opened: what loads obstore.

Apart from ``opening``, so that a process which reads and writes folders alone does without it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from obstore import exceptions
from obstore.store import AzureStore, GCSStore, S3Store

from tierlog.errors import ConfigError
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.credentials.aws import choose_credentials
from tierlog.runtime.stores.credentials.google import choose_google_tokens
from tierlog.runtime.stores.credentials.google import credential_provider as google_provider
from tierlog.runtime.stores.protocol.object_store import RequestCounts
from tierlog.runtime.stores.protocol.store_writer import StoreWriter
from tierlog.runtime.stores.reading.endpoint_check import EndpointCheck
from tierlog.runtime.stores.reading.obstore_errors import short_text
from tierlog.runtime.stores.reading.obstore_writer import MemoryBucket, MemoryWriter
from tierlog.runtime.stores.reading.redirects import own_hosts_only
from tierlog.runtime.stores.reading.remote_store import RemoteStore
from tierlog.runtime.stores.s3.options import credential_provider, obstore_config
from tierlog.runtime.stores.settings.keys import unknown_key
from tierlog.runtime.stores.settings.options import StoreOptions

if TYPE_CHECKING:
    from tierlog.runtime.stores.writing.http_client import HttpAnswer

_REFUSED_KEY: Final = re.compile(r"[Kk]ey: '([^']*)' is not valid")
_MAKERS: Final[dict[str, Any]] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}

_memory_lock = threading.Lock()
#: The memory stores of this process by name: a second ``memory://name`` sees the objects of the first one.
_memory_buckets: dict[str, MemoryBucket] = {}


def open_bucket(scheme: str, bucket: str, folder: str, options: StoreOptions, machine: Machine) -> RemoteStore:
    """Open a store over the folder of a bucket; ``scheme`` is s3, gs or az. Raises ConfigError: the store refuses an
    option.
    """
    name = f"{scheme}://{bucket}/{folder}".rstrip("/")
    opening = {"s3": _open_s3, "az": _open_azure, "gs": _open_google}[scheme]
    return opening(bucket, folder, name, options, machine, RequestCounts())


def _open_s3(
    bucket: str, folder: str, name: str, options: StoreOptions, machine: Machine, counts: RequestCounts
) -> RemoteStore:
    credentials = choose_credentials(
        options.config, machine, source=options.credentials_source, file=options.credentials_file
    )
    config = obstore_config(bucket, options, credentials)
    provider = credential_provider(credentials)
    make = partial(_make, "s3", bucket, folder, options, machine, config=config, credential_provider=provider)
    store = make()

    def make_writer() -> StoreWriter:
        from tierlog.runtime.stores.s3.writer import make_s3_writer

        return make_s3_writer(bucket, folder, name, options, credentials, machine, counts)

    # A directory bucket lists in an order of its own.
    resumes = options.config.get("s3_express", "false") != "true"
    check = _endpoint_check(name, options, machine, make, "s3")
    if not options.check_reads:
        return RemoteStore(store, name, make_writer, counts, resumes_listings=resumes, endpoint=check)
    from tierlog.runtime.stores.reading.checked_store import CheckedS3Store

    return CheckedS3Store(store, name, make_writer, counts, resumes_listings=resumes, endpoint=check)


def _open_azure(
    bucket: str, folder: str, name: str, options: StoreOptions, machine: Machine, counts: RequestCounts
) -> RemoteStore:
    make = partial(_make, "az", bucket, folder, options, machine, config=options.config)
    store = make()

    def make_writer() -> StoreWriter:
        from tierlog.runtime.stores.azure.writer import make_azure_writer

        return make_azure_writer(store, bucket, folder, name, options, machine, counts)

    check = _endpoint_check(name, options, machine, make, "azure")
    return RemoteStore(store, name, make_writer, counts, endpoint=check)


def _open_google(
    bucket: str, folder: str, name: str, options: StoreOptions, machine: Machine, counts: RequestCounts
) -> RemoteStore:
    tokens = choose_google_tokens(options.config, machine.files)
    provider = google_provider(tokens)
    make = partial(_make, "gs", bucket, folder, options, machine, config=options.config, credential_provider=provider)
    store = make()

    def make_writer() -> StoreWriter:
        from tierlog.runtime.stores.gcs.writer import make_gcs_writer

        return make_gcs_writer(bucket, folder, name, options, tokens, machine, counts)

    check = _endpoint_check(name, options, machine, make, "gcs")
    return RemoteStore(store, name, make_writer, counts, etag_field="version", endpoint=check)


def _endpoint_check(
    name: str, options: StoreOptions, machine: Machine, make: Callable[..., Any], extra: str
) -> EndpointCheck:
    """Make the check that asks the endpoint of a store when its first read gets no good answer."""

    def ask(url: str) -> HttpAnswer:
        from tierlog.runtime.stores.writing.bucket_client import ask_once

        return ask_once(name, options, machine, url, extra=extra)

    return EndpointCheck(name, lambda: make(retry_config={"max_retries": 0}), ask)


def open_memory_bucket(name: str, folder: str) -> RemoteStore:
    """Open the store of that name in this process. Raises ConfigError: a folder in it."""
    with _memory_lock:
        found = _memory_buckets.setdefault(name, MemoryBucket())
    if folder:
        raise ConfigError(f"memory://{name}/{folder}: a store in memory has no folders to begin at; use key.prefix")
    counts = RequestCounts()
    url = f"memory://{name}"
    return RemoteStore(found.store, url, lambda: MemoryWriter(found, url, counts), counts, is_local=True)


def _make(
    scheme: str,
    bucket: str,
    folder: str,
    options: StoreOptions,
    machine: Machine,
    *,
    config: dict[str, str],
    **more: object,
) -> Any:
    own_hosts = own_hosts_only(scheme, bucket, config, options.client, machine.files)
    try:
        return _MAKERS[scheme](
            bucket,
            prefix=folder or None,
            config=config,
            client_options=options.client | own_hosts,
            **{"retry_config": options.retry_config()}
            | {name: value for name, value in more.items() if value is not None},
        )
    except exceptions.UnknownConfigurationKeyError as error:
        refused = _REFUSED_KEY.search(str(error))
        if refused is not None:
            raise unknown_key(f"store.{refused[1]}", scheme) from None
        raise ConfigError(f"store option: {short_text(error)}") from None
    except (exceptions.BaseError, ValueError, TypeError) as error:
        # Without its cause, which may quote options.
        raise ConfigError(f"{scheme}://{bucket}: {short_text(error)}") from None
