"""Options of object stores: ``store.*`` passed through to obstore, the RSM's ``storage.*`` in obstore's words.

Values may be secrets: no message quotes one.
"""

from __future__ import annotations

import configparser
import difflib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from tierlog.errors import ConfigError, StoreError
from tierlog.runtime.machine.files import Files
from tierlog.runtime.machine.secret_files import read_secret_file
from tierlog.runtime.stores.credentials.aws import read_key_file
from tierlog.runtime.stores.protocol.part_checksums import ChecksumMode
from tierlog.runtime.stores.settings.keys import CLIENT_NAMES, check_known, plain_name

#: A call of one window ends within these, whatever the store does.
_DEFAULT_CLIENT: Final = {"timeout": "30s", "connect_timeout": "5s"}
_DEFAULT_RETRIES: Final = 4
_DEFAULT_RETRY_TIMEOUT: Final = timedelta(seconds=60)
_CREDENTIAL_FILE_BYTES_MAX: Final = 1 << 20
_ENDPOINT_ENDS: Final = ("endpoint", "base_url", "endpoint_url")
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|sec|m|min|h)?")
_SECONDS: Final = {"ms": 0.001, "s": 1, "sec": 1, "": 1, "m": 60, "min": 60, "h": 3600}


@dataclass(slots=True)
class StoreOptions:
    """What a store is made with.

    Args:
        config: Of obstore's store, in its words.
        client: Of its HTTP client.
        credentials_source: Of aws_credentials.SOURCES.
        credentials_file: Of keys of S3, read again when it changes.
        checksums: Of what is written to S3; None finds out what the store knows.
        bucket_in_host: The bucket's name goes in front of the endpoint's.
        storage_class: Of what is written.
        encryption_key: Of Cloud KMS, for what is written to Google; the scope of Azure's.
        durable: Local files are fsynced.
        check_reads: Whole objects of S3 are compared with the store's checksum.
    """

    config: dict[str, str] = field(default_factory=dict, repr=False)
    client: dict[str, str] = field(default_factory=lambda: dict(_DEFAULT_CLIENT))
    max_retries: int = _DEFAULT_RETRIES
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
        """In obstore's form."""
        return {"max_retries": self.max_retries, "retry_timeout": self.retry_timeout}

    @property
    def timeout_seconds(self) -> float:
        """Of one request."""
        return _seconds("store.timeout", self.client["timeout"]).total_seconds()

    @property
    def connect_seconds(self) -> float:
        return _seconds("store.connect_timeout", self.client["connect_timeout"]).total_seconds()


def _boolean(key: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ConfigError(f"{key}: true or false expected")
    return value.lower() == "true"


def _seconds(key: str, value: str) -> timedelta:
    found = _DURATION.fullmatch(value)
    if found is None:
        raise ConfigError(f"{key}: a duration such as 30s or 500ms expected")
    return timedelta(seconds=float(found[1]) * _SECONDS[found[2] or ""])


def _milliseconds(key: str, value: str) -> int:
    if not value.isascii() or not value.isdigit() or int(value) < 1:
        raise ConfigError(f"{key}: milliseconds, at least 1, expected")
    return int(value)


def _endpoint(options: StoreOptions, key: str, value: str, into: str) -> None:
    if not value.startswith(("http://", "https://")):
        raise ConfigError(f"{key}: an http or https URL expected")
    _refuse_login(key, value)
    options.config[into] = value.rstrip("/")
    if value.startswith("http://"):
        options.client["allow_http"] = "true"


_Setter = Callable[[StoreOptions, str, str, Files], None]


def _plain(into: str) -> _Setter:
    def put(options: StoreOptions, _key: str, value: str, _files: Files) -> None:
        options.config[into] = value

    return put


def _url(into: str) -> _Setter:
    return lambda options, key, value, _files: _endpoint(options, key, value, into)


def _path_style(options: StoreOptions, key: str, value: str, _files: Files) -> None:
    in_path = _boolean(key, value)
    options.config["virtual_hosted_style_request"] = "false" if in_path else "true"
    options.bucket_in_host = not in_path


def _call_timeout(options: StoreOptions, key: str, value: str, _files: Files) -> None:
    options.retry_timeout = timedelta(milliseconds=_milliseconds(key, value))


def _attempt_timeout(options: StoreOptions, key: str, value: str, _files: Files) -> None:
    options.client["timeout"] = f"{_milliseconds(key, value)}ms"


def _certificates(options: StoreOptions, key: str, value: str, _files: Files) -> None:
    options.client["allow_invalid_certificates"] = "false" if _boolean(key, value) else "true"


def _credentials_source(options: StoreOptions, _key: str, value: str, _files: Files) -> None:
    options.credentials_source = value


def _aws_file(options: StoreOptions, key: str, value: str, files: Files) -> None:
    read_key_file(key, value, files)
    options.credentials_file = value


def _old_checksums(options: StoreOptions, key: str, value: str, _files: Files) -> None:
    if _boolean(key, value):
        options.checksums = ChecksumMode.MD5


def _check_reads(options: StoreOptions, key: str, value: str, _files: Files) -> None:
    options.check_reads = _boolean(key, value)


def _storage_class(options: StoreOptions, _key: str, value: str, _files: Files) -> None:
    options.storage_class = value if value.upper() != "STANDARD" else None


def _encryption_key(options: StoreOptions, _key: str, value: str, _files: Files) -> None:
    options.encryption_key = value


def _bucket_key(options: StoreOptions, key: str, value: str, _files: Files) -> None:
    options.config["sse_bucket_key_enabled"] = str(_boolean(key, value)).lower()


def _gcs_default(options: StoreOptions, key: str, value: str, _files: Files) -> None:
    if not _boolean(key, value):
        options.config["skip_signature"] = "true"


def _gcs_json(options: StoreOptions, key: str, value: str, _files: Files) -> None:
    try:
        found = json.loads(value)
    except ValueError:
        raise ConfigError(f"{key}: not JSON") from None  # the cause would quote the credentials
    if isinstance(found, dict) and "type" not in found and isinstance(found.get("access_token"), str):
        options.config["bearer_token"] = found["access_token"]
    else:
        options.config["service_account_key"] = value


def _gcs_file(options: StoreOptions, key: str, value: str, files: Files) -> None:
    try:
        text = read_secret_file(key, value, files, limit_bytes=_CREDENTIAL_FILE_BYTES_MAX).decode("utf-8")
    except (StoreError, UnicodeDecodeError) as cause:
        raise ConfigError(f"{key}: cannot read {value}: {type(cause).__name__}") from cause
    _gcs_json(options, key, text, files)


def _azure_connection(options: StoreOptions, key: str, value: str, _files: Files) -> None:
    parts = dict(part.split("=", 1) for part in value.split(";") if "=" in part)
    parts = {name.strip().lower(): text.strip() for name, text in parts.items()}
    for name, into in (
        ("accountname", "account_name"),
        ("accountkey", "account_key"),
        ("sharedaccesssignature", "sas_key"),
    ):
        if name in parts:
            options.config[into] = parts[name]
    endpoint = parts.get("blobendpoint")
    if endpoint is None and "endpointsuffix" in parts and "accountname" in parts:
        protocol = parts.get("defaultendpointsprotocol", "https")
        endpoint = f"{protocol}://{parts['accountname']}.blob.{parts['endpointsuffix']}"
    if endpoint is not None:
        _endpoint(options, key, endpoint, "endpoint")
    if "account_name" not in options.config:
        raise ConfigError(f"{key}: AccountName is missing")


_S3: Final[dict[str, _Setter]] = {
    "storage.s3.region": _plain("region"),
    "storage.s3.endpoint.url": _url("endpoint"),
    "storage.s3.path.style.access.enabled": _path_style,
    "storage.s3.api.call.timeout": _call_timeout,
    "storage.s3.api.call.attempt.timeout": _attempt_timeout,
    "storage.aws.access.key.id": _plain("access_key_id"),
    "storage.aws.secret.access.key": _plain("secret_access_key"),
    "storage.aws.session.token": _plain("session_token"),
    "storage.aws.credentials.file": _aws_file,
    "storage.aws.credentials.provider.class": _credentials_source,
    "storage.s3.storage.class": _storage_class,
    "storage.s3.legacy.md5.plugin.enabled": _old_checksums,
    "storage.s3.server.side.encryption": _plain("server_side_encryption"),
    "storage.s3.server.side.encryption.kms.key.id": _plain("sse_kms_key_id"),
    "storage.s3.server.side.encryption.bucket.key.enabled": _bucket_key,
    "storage.aws.certificate.check.enabled": _certificates,
    "storage.aws.checksum.check.enabled": _check_reads,
}
_GCS: Final[dict[str, _Setter]] = {
    "storage.gcs.endpoint.url": _url("base_url"),
    "storage.gcs.credentials.default": _gcs_default,
    "storage.gcs.credentials.json": _gcs_json,
    "storage.gcs.credentials.path": _gcs_file,
    "storage.gcs.encryption.kms.key.name": _encryption_key,
}
_AZURE: Final[dict[str, _Setter]] = {
    "storage.azure.account.name": _plain("account_name"),
    "storage.azure.account.key": _plain("account_key"),
    "storage.azure.sas.token": _plain("sas_key"),
    "storage.azure.connection.string": _azure_connection,
    "storage.azure.endpoint.url": _url("endpoint"),
    "storage.azure.encryption.scope": _encryption_key,
}
_BY_SCHEME: Final = {"s3": _S3, "gs": _GCS, "az": _AZURE}
_PROXY_KEYS: Final = ("storage.proxy.host", "storage.proxy.port", "storage.proxy.username", "storage.proxy.password")
#: The RSM's keys that stores understand; another cloud's are accepted and not used.
STORAGE_KEYS: Final = frozenset((*_S3, *_GCS, *_AZURE, *_PROXY_KEYS))


def read_store_options(
    scheme: str, options: Mapping[str, str], files: Files, *, shared_region: bool = True
) -> StoreOptions:
    """The options of a store of one scheme: "s3", "gs" or "az". ``store.*`` wins over ``storage.*``.

    ``shared_region`` takes that of ``~/.aws`` where nothing else gives one.

    Raises:
        ConfigError: an unknown option or a malformed value. Store keys of obstore are checked where it makes the store.
    """
    found = StoreOptions()
    for key, value in options.items():
        if key in (setters := _BY_SCHEME[scheme]):
            setters[key](found, key, value, files)
        elif not key.startswith("store.") and key not in STORAGE_KEYS:
            near = difflib.get_close_matches(key, sorted(STORAGE_KEYS), n=1, cutoff=0.0)[0]
            raise ConfigError(f"unknown store option {key}; the nearest known one is {near}")
    if scheme != "s3":
        _add_proxy(found, options)
    for key, value in options.items():
        if key.startswith("store."):
            _add_own(found, key, value)
    for key, value in (*found.config.items(), *_ambient_endpoints(scheme)):
        if key.lower().endswith(_ENDPOINT_ENDS):
            _refuse_login(key, value)
    endpoint = next((v for k, v in found.config.items() if k.endswith(_ENDPOINT_ENDS)), "")
    if endpoint.startswith("http://"):
        found.client.setdefault("allow_http", "true")
    if scheme == "s3" and shared_region:
        _add_shared_region(found, files)
    return found


def _ambient_endpoints(scheme: str) -> list[tuple[str, str]]:
    """What a store takes from the environment where no option says otherwise."""
    begin = {"s3": "AWS_", "gs": "GOOGLE_", "az": "AZURE_"}[scheme]
    return [(name, value) for name, value in os.environ.items() if name.startswith(begin)]


def _refuse_login(key: str, value: str) -> None:
    """A login in a URL would be sent beside the signature, and stand in every message that names the URL."""
    if "@" in value.partition("://")[2].partition("/")[0]:
        raise ConfigError(f"{key}: a login does not belong into an endpoint: give credentials by their own keys")


def _add_own(found: StoreOptions, key: str, value: str) -> None:
    name = plain_name(key)
    if name in _OWN:
        _OWN[name](found, key, value)
    elif name in CLIENT_NAMES:
        found.client[name] = value
    else:
        found.config[name] = value


def read_durable(options: Mapping[str, str]) -> bool:
    """Of a folder: ``store.durable``.

    Raises:
        ConfigError: it is neither true nor false, or another ``store.*`` is one that no store knows.
    """
    durable = True
    for key, value in options.items():
        if key.startswith("store."):
            check_known(key)
            if plain_name(key) == "durable":
                durable = _boolean(key, value)
    return durable


def _own_retries(found: StoreOptions, key: str, value: str) -> None:
    if not value.isascii() or not value.isdigit() or int(value) > 100:
        raise ConfigError(f"{key}: a number from 0 to 100 expected")
    found.max_retries = int(value)


def _own_retry_timeout(found: StoreOptions, key: str, value: str) -> None:
    found.retry_timeout = _seconds(key, value)


def _own_checksums(found: StoreOptions, key: str, value: str) -> None:
    known = {mode.value: mode for mode in ChecksumMode}
    if value != "auto" and value not in known:
        raise ConfigError(f"{key}: auto, {', '.join(known)} expected")
    found.checksums = known.get(value)


def _own_storage_class(found: StoreOptions, _key: str, value: str) -> None:
    found.storage_class = value


def _own_durable(found: StoreOptions, key: str, value: str) -> None:
    found.durable = _boolean(key, value)


#: Of store_keys.OWN_KEYS, each.
_OWN: Final[dict[str, Callable[[StoreOptions, str, str], None]]] = {
    "max_retries": _own_retries,
    "retry_timeout": _own_retry_timeout,
    "checksums": _own_checksums,
    "storage_class": _own_storage_class,
    "durable": _own_durable,
}


def _add_proxy(found: StoreOptions, options: Mapping[str, str]) -> None:
    host, port, user, password = (options.get(key) for key in _PROXY_KEYS)
    if not any((host, port, user, password)):
        return
    if not host or not port or bool(user) != bool(password):
        raise ConfigError("storage.proxy: host and port are needed, and username and password both or neither")
    login = f"{user}:{password}@" if user else ""
    found.client["proxy_url"] = f"socks5h://{login}{host}:{port}"


def _add_shared_region(found: StoreOptions, files: Files) -> None:
    """That of the profile in ``~/.aws/config``, where neither options nor environment give one."""
    ambient = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if ambient or any(name in found.config for name in ("region", "aws_region", "default_region")):
        return
    profile = os.environ.get("AWS_PROFILE") or "default"
    section = profile if profile == "default" else f"profile {profile}"
    region = _profile(files, "AWS_CONFIG_FILE", "~/.aws/config", section).get("region")
    if region:
        found.config["region"] = region


def _profile(files: Files, variable: str, usual: str, section: str) -> dict[str, str]:
    path = os.environ.get(variable) or os.path.expanduser(usual)
    if files.find(path) is None:
        return {}
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(_read_text(files, variable, path))
    except configparser.Error:
        raise ConfigError(f"{path}: not in the form of AWS's configuration files") from None
    return dict(parser[section]) if parser.has_section(section) or section == "DEFAULT" else {}


def _read_text(files: Files, key: str, path: str) -> str:
    try:
        return files.read_whole(path, limit_bytes=_CREDENTIAL_FILE_BYTES_MAX).decode("utf-8")
    except (StoreError, UnicodeDecodeError) as cause:
        raise ConfigError(f"{key}: cannot read {path}: {type(cause).__name__}") from cause
