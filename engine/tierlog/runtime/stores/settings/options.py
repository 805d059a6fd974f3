"""Options of object stores: what ``store.*`` keys say, ours and those that are passed through to obstore.

Values may be secrets: no message quotes one.
"""

from __future__ import annotations

import os
import re
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, NamedTuple

from tierlog.config_keys import WrongValueError, rows
from tierlog.errors import ConfigError
from tierlog.runtime.machine.files import Files
from tierlog.runtime.stores.credentials.aws import read_section, shared_config_path
from tierlog.runtime.stores.protocol.store_writer import ChecksumMode
from tierlog.runtime.stores.settings.keys import ClientKeys, OwnKeys, check_known, plain_name, unknown_key

#: A call of one window ends within these, whatever the store does.
_DEFAULT_CLIENT: Final = {"timeout": "30s", "connect_timeout": "5s"}
#: S3 throttles for as long while it splits a prefix: tries that were counted would be spent within a second.
_DEFAULT_RETRY_TIMEOUT: Final = timedelta(seconds=90)
#: Of obstore, which wants a number: more than fit into any time.
_ANY_NUMBER: Final = 1_000_000_000
#: Pauses between obstore's tries: they grow from the first to the longest, each of them by chance.
_FIRST_PAUSE: Final = timedelta(milliseconds=100)
_LONGEST_PAUSE: Final = timedelta(seconds=10)
#: With obstore's own 2 the pauses stay near the first one: half of what chance takes off is more than they grow.
_PAUSES_GROW: Final = 3
_ENDPOINT_ENDS: Final = ("endpoint", "base_url", "endpoint_url", "endpoint_url_s3")
#: Names of the store's own address, without what obstore lets stand in front of them; the first that is given holds.
_ADDRESSES: Final = {"s3": ("endpoint_url_s3", "endpoint_url", "endpoint"), "gs": ("base_url",), "az": ("endpoint",)}
_BRANDS: Final = {"s3": ("", "aws_"), "gs": ("", "google_"), "az": ("", "azure_storage_", "azure_")}


@dataclass(slots=True)
class StoreOptions:
    """All options of opening a store.

    Args:
        config: Options of obstore's store, in its words.
        client: Options of its HTTP client.
        max_retries: Tries of a request after the first one; None is as many as fit into ``retry_timeout``.
        retry_timeout: No try begins later than this after the first one.
        credentials_source: Where S3's keys come from: one of credentials.aws.SOURCES.
        credentials_file: A file of S3's keys, read again when it changes.
        checksums: The checksum of objects that are written to S3; None finds out the store's.
        bucket_in_host: Whether the bucket's name goes in front of the endpoint's.
        storage_class: The class of objects that are written.
        encryption_key: The key of Cloud KMS for objects written to Google; Azure's encryption scope.
        durable: Whether local files are fsynced.
        check_reads: Whether whole objects of S3 are compared with the store's checksum.
    """

    config: dict[str, str] = field(default_factory=dict, repr=False)
    client: dict[str, str] = field(default_factory=lambda: dict(_DEFAULT_CLIENT))
    max_retries: int | None = None
    retry_timeout: timedelta = _DEFAULT_RETRY_TIMEOUT
    credentials_source: str = "default"
    credentials_file: str | None = None
    checksums: ChecksumMode | None = None
    bucket_in_host: bool = False
    storage_class: str | None = None
    encryption_key: str | None = None
    durable: bool = True
    check_reads: bool = False

    def retry_config(self) -> dict[str, Any]:
        """Return limits of tries, in obstore's form: it looks at the time before a pause, and tries once more behind
        it.
        """
        pause = min(_LONGEST_PAUSE, self.retry_timeout / 9)
        longest = max(pause, timedelta(milliseconds=1))  # of none its chance has nothing to choose from
        return {
            "max_retries": _ANY_NUMBER if self.max_retries is None else self.max_retries,
            "retry_timeout": self.retry_timeout - pause,
            "backoff": {
                "init_backoff": min(_FIRST_PAUSE, longest),
                "max_backoff": longest,
                "base": _PAUSES_GROW,
            },
        }

    @property
    def timeout_seconds(self) -> float:
        """The time limit of one request."""
        return read_duration("store.timeout", self.client["timeout"]).total_seconds()

    @property
    def connect_seconds(self) -> float:
        return read_duration("store.connect_timeout", self.client["connect_timeout"]).total_seconds()


#: What other words than ``store.*`` say of a store of a scheme: "s3", "gs" or "az".
BeginOptions = Callable[[str, Files], StoreOptions]


def read_store_options(
    scheme: str,
    options: Mapping[str, str],
    files: Files,
    *,
    begin: BeginOptions | None = None,
    shared_region: bool = True,
) -> StoreOptions:
    """Read the options of a store of one scheme.

    Args:
        scheme: "s3", "gs" or "az".
        options: ``store.*`` keys; they win over ``begin``.
        files: Where ``~/.aws`` is.
        begin: Makes options from keys of another vocabulary.
        shared_region: Whether to take the region of ``~/.aws`` where nothing else gives one.

    Raises:
        ConfigError: an unknown option or a malformed value. Store keys of obstore are checked where it makes the store.
    """
    found = StoreOptions() if begin is None else begin(scheme, files)
    for key, value in options.items():
        if not key.startswith("store."):
            raise unknown_key(key, scheme)
        _add_own(found, key, value)
    for key, value in (*found.config.items(), *_ambient_endpoints(scheme)):
        if key.lower().endswith(_ENDPOINT_ENDS):
            refuse_login(key, value)
    plain = _address(scheme, found.config).startswith("http://")
    if plain and found.client.setdefault("allow_http", "true").lower() == "false":
        raise ConfigError("the store's endpoint begins with http://, which store.allow_http=false refuses")
    if scheme == "s3" and shared_region:
        _add_shared_region(found, files)
    return found


def _address(scheme: str, config: Mapping[str, str]) -> str:
    """Return the server that is named in place of the cloud's own, by an option or else the environment; ""
    if none is.
    """
    names = [f"{brand}{name}" for name in _ADDRESSES[scheme] for brand in _BRANDS[scheme]]
    ambient = {name.lower(): value for name, value in _ambient_endpoints(scheme)}
    return next((found for where in (config, ambient) for name in names if (found := where.get(name))), "")


def _ambient_endpoints(scheme: str) -> list[tuple[str, str]]:
    """Return the names and values of the environment that a store takes where no option says otherwise."""
    begin = {"s3": "AWS_", "gs": "GOOGLE_", "az": "AZURE_"}[scheme]
    return [(name, value) for name, value in os.environ.items() if name.startswith(begin)]


def _add_own(found: StoreOptions, key: str, value: str) -> None:
    name = plain_name(key)
    row = rows(OwnKeys).get(name)
    if row is not None:
        try:
            own = row.read(value, key)
        except WrongValueError as wrong:
            raise ConfigError(f"{key}: {wrong.wanted}") from None
        setattr(found, name, _OWN[name](key, own) if name in _OWN else own)
    elif name in rows(ClientKeys):
        if name == "proxy_url" and not value.lower().startswith(("http://", "https://")):
            raise ConfigError(f"{key}: an http or https URL is expected; nothing goes through a SOCKS proxy")
        found.client[name] = value
    else:
        found.config[name] = value


def read_durable(options: Mapping[str, str]) -> bool:
    """Whether files of a folder are fsynced: ``store.durable``.

    Raises:
        ConfigError: it is neither true nor false, or another ``store.*`` is unknown to all stores.
    """
    durable = True
    for key, value in options.items():
        if key.startswith("store."):
            check_known(key)
            if plain_name(key) == "durable":
                durable = read_boolean(key, value)
    return durable


#: Parsers of the texts of OwnKeys.
_OWN: Final[dict[str, Callable[[str, Any], Any]]] = {
    "retry_timeout": lambda key, value: read_duration(key, value),  # noqa: PLW0108 - it stands below
    "checksums": lambda _key, value: None if value == "auto" else ChecksumMode(value),
}


def _add_shared_region(found: StoreOptions, files: Files) -> None:
    """Add the region of the profile in ``~/.aws/config``, where neither options nor environment give one."""
    ambient = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if ambient or any(name in found.config for name in ("region", "aws_region", "default_region")):
        return
    profile = os.environ.get("AWS_PROFILE") or "default"
    section = profile if profile == "default" else f"profile {profile}"
    if region := read_section(shared_config_path(), section, files).get("region"):
        found.config["region"] = region


_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|sec|m|min|h)?")
_SECONDS: Final = {"ms": 0.001, "s": 1, "sec": 1, "": 1, "m": 60, "min": 60, "h": 3600}


def read_boolean(key: str, value: str) -> bool:
    """Whether a value says true. Raises ConfigError: it says neither."""
    if value.lower() not in ("true", "false"):
        raise ConfigError(f"{key}: true or false expected")
    return value.lower() == "true"


def read_duration(key: str, value: str) -> timedelta:
    """Parse a duration such as 30s. Raises ConfigError: it is none."""
    found = _DURATION.fullmatch(value)
    if found is None:
        raise ConfigError(f"{key}: a duration such as 30s or 500ms expected")
    return timedelta(seconds=float(found[1]) * _SECONDS[found[2] or ""])


def refuse_login(key: str, value: str) -> None:
    """Raise ConfigError for a URL with a login, which would be sent beside the signature and be in every message."""
    if "@" in value.partition("://")[2].partition("/")[0]:
        raise ConfigError(f"{key}: a login does not belong into an endpoint: give credentials by their own keys")


class AmbientProxy(NamedTuple):
    """A proxy, and the variable that names it (in capitals)."""

    variable: str
    url: str


def find_ambient_proxy(scheme: str, host: str) -> AmbientProxy | None:
    """Find the proxy by which requests to a host go; None for a host that is reached directly.

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
