"""Object stores by URL or local path."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

from tierlog.errors import ConfigError
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.azure import urls as azure_urls
from tierlog.runtime.stores.local.store import LocalStore
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.s3.options import address_config
from tierlog.runtime.stores.settings.options import BeginOptions, read_durable, read_store_options

_SCHEMES: Final = {
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gs",
    "gcs": "gs",
    "az": "az",
    "azure": "az",
    **dict.fromkeys(azure_urls.SCHEMES, "az"),
    "memory": "memory",
    "file": "file",
}


def open_store(
    url: str,
    options: Mapping[str, str] | None = None,
    *,
    machine: Machine | None = None,
    begin: BeginOptions | None = None,
) -> ObjectStore:
    """Open the store that a URL or a local path names; keys are relative to it.

    Args:
        url: ``s3://bucket/folder`` (also ``s3a``), ``gs://bucket/folder``, ``az://container/folder`` (the account comes
            by option or environment), ``abfss://container@account.dfs.core.windows.net/folder`` (also ``wasbs``),
            ``memory://name/folder`` (of this process), ``file:///folder`` or a local path.
        options: ``store.<key>`` with the keys of obstore (S3Config, GCSConfig, AzureConfig, ClientConfig, and
            ``max_retries``, ``retry_timeout``). Options left out come from the environment.
        machine: The machine that the store runs on; its files, for local paths and credentials.
        begin: Makes options from keys of another vocabulary; ``options`` win over them.

    Raises:
        ConfigError: an unknown scheme or option, or a value that the store refuses.
        ObjectNotFoundError: a local folder that does not exist. StoreError: it is a file.
    """
    machine = machine or Machine()
    scheme, rest = _split(url)
    if scheme == "file":
        return LocalStore(rest, machine, durable=read_durable(options or {}))
    bucket, folder, account = _bucket_of(scheme, url)
    from tierlog.runtime.stores.buckets import open_bucket, open_memory_bucket

    if scheme == "memory":
        return open_memory_bucket(bucket, folder)
    made = read_store_options(scheme, options or {}, machine.files, begin=begin)
    azure_urls.add_account(made.config, account)
    return open_bucket(scheme, bucket, folder, made, machine)


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """The address of a store for a reader other than this package.

    Attributes:
        kind: "local" or "object".
        url: An absolute folder, or ``scheme://bucket/folder`` with s3, gs or az; the folder as it is, not encoded.
        options: The options of obstore: of the store, of its HTTP client, and ``retry_timeout`` (``90000ms``) and
            ``max_retries`` (where tries are counted). Secrets among them perhaps. Values of the environment are not in
            it.
    """

    kind: str
    url: str
    options: Mapping[str, str] = field(repr=False)


def address_store(
    url: str,
    options: Mapping[str, str] | None = None,
    *,
    machine: Machine | None = None,
    begin: BeginOptions | None = None,
) -> StoreAddress:
    """Return the address and options that ``open_store`` would use, for a reader in another process. Opens nothing.

    Raises:
        ConfigError: as open_store, but for what only the store itself refuses; a store in memory, which is of this
            process.
    """
    scheme, rest = _split(url)
    if scheme == "file":
        return StoreAddress("local", os.path.abspath(rest), {})
    bucket, folder, account = _bucket_of(scheme, url)
    if scheme == "memory":
        raise ConfigError(f"memory://{bucket} is of the process that made it: no other can read it")
    # What ~/.aws gives is found where it is used: another machine's is another's.
    files = (machine or Machine()).files
    made = read_store_options(scheme, options or {}, files, begin=begin, shared_region=False)
    azure_urls.add_account(made.config, account)
    config = address_config(bucket, made, files) if scheme == "s3" else made.config
    retries = {"retry_timeout": f"{round(made.retry_timeout.total_seconds() * 1000)}ms"}
    if made.max_retries is not None:
        retries["max_retries"] = str(made.max_retries)
    return StoreAddress("object", f"{scheme}://{bucket}/{folder}".rstrip("/"), config | made.client | retries)


def _bucket_of(scheme: str, url: str) -> tuple[str, str, dict[str, str]]:
    """Return (bucket, folder in it, the URL's options of Azure's account). Raises ConfigError."""
    given, _, rest = url.partition("://")
    bucket, _, folder = rest.partition("/")
    account: dict[str, str] = {}
    if given.lower() in azure_urls.SCHEMES:
        bucket, account = azure_urls.split_account(given.lower(), bucket)
    elif "@" in bucket:
        hint = "; an account is named as in abfss://container@account.dfs.core.windows.net/" if scheme == "az" else ""
        raise ConfigError(f"{scheme}://…@…: credentials do not belong into a path: give them as store.* options{hint}")
    if not bucket and scheme != "memory":
        raise ConfigError(f"{scheme}://{rest}: the bucket is missing")
    return bucket, folder.strip("/"), account


def split_last(url: str) -> tuple[str, str]:
    """Return (folder, last name) of a URL or a path; ("", "") where there is nothing above."""
    scheme, rest = _split(url)
    if scheme == "file":
        folder, _, name = os.path.abspath(rest).rpartition("/")
        return (folder or "/", name) if name else ("", "")
    given = url.partition("://")[0]
    if given.lower() in azure_urls.SCHEMES:  # what follows means something else behind az://
        scheme = given
    folder, slash, name = rest.rstrip("/").rpartition("/")
    return (f"{scheme}://{folder}", name) if slash else ("", "")


def local_path(url: str) -> str | None:
    """Return the path of a local URL or path; None for a bucket."""
    scheme, rest = _split(url)
    return rest if scheme == "file" else None


def _split(url: str) -> tuple[str, str]:
    """(our name of the scheme, what follows). A path without a scheme is a file's."""
    given, mark, rest = url.partition("://")
    if not mark:
        return "file", url
    scheme = _SCHEMES.get(given.lower())
    if scheme is None:
        raise ConfigError(f"unknown scheme {given}://; known are s3, gs, az, abfss, file, memory and local paths")
    if scheme == "file":
        host, slash, path = rest.partition("/")
        if host not in ("", "localhost") or not slash:
            raise ConfigError(f"{url}: file:///absolute/path expected")
        # A URL may be encoded, a path is not: a file under the plain text is the one that is meant.
        plain = f"/{path}"
        return "file", plain if "%" not in plain or os.path.exists(plain) else unquote(plain)
    return scheme, rest
