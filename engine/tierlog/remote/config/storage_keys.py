"""The plugin's ``storage.*`` keys as the options of a store's client."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Final

from tierlog.errors import ConfigError, StoreError
from tierlog.runtime.machine.files import Files, read_secret_file
from tierlog.runtime.stores.credentials.aws import read_key_file
from tierlog.runtime.stores.protocol.store_writer import ChecksumMode
from tierlog.runtime.stores.settings.options import BeginOptions, StoreOptions, read_boolean, refuse_login

_CREDENTIAL_FILE_BYTES_MAX: Final = 1 << 20


def _milliseconds(key: str, value: str) -> int:
    if not value.isascii() or not value.isdigit() or int(value) < 1:
        raise ConfigError(f"{key}: milliseconds, at least 1, expected")
    return int(value)


def _endpoint(options: StoreOptions, key: str, value: str, into: str) -> None:
    if not value.startswith(("http://", "https://")):
        raise ConfigError(f"{key}: an http or https URL expected")
    refuse_login(key, value)
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
    in_path = read_boolean(key, value)
    options.config["virtual_hosted_style_request"] = "false" if in_path else "true"
    options.bucket_in_host = not in_path


def _call_timeout(options: StoreOptions, key: str, value: str, _files: Files) -> None:
    options.retry_timeout = timedelta(milliseconds=_milliseconds(key, value))


def _attempt_timeout(options: StoreOptions, key: str, value: str, _files: Files) -> None:
    options.client["timeout"] = f"{_milliseconds(key, value)}ms"


def _certificates(options: StoreOptions, key: str, value: str, _files: Files) -> None:
    options.client["allow_invalid_certificates"] = "false" if read_boolean(key, value) else "true"


def _credentials_source(options: StoreOptions, _key: str, value: str, _files: Files) -> None:
    options.credentials_source = value


def _aws_file(options: StoreOptions, key: str, value: str, files: Files) -> None:
    read_key_file(value, files, option=key)
    options.credentials_file = value


def _old_checksums(options: StoreOptions, key: str, value: str, _files: Files) -> None:
    if read_boolean(key, value):
        options.checksums = ChecksumMode.MD5


def _check_reads(options: StoreOptions, key: str, value: str, _files: Files) -> None:
    options.check_reads = read_boolean(key, value)


def _storage_class(options: StoreOptions, _key: str, value: str, _files: Files) -> None:
    options.storage_class = value if value.upper() != "STANDARD" else None


def _encryption_key(options: StoreOptions, _key: str, value: str, _files: Files) -> None:
    options.encryption_key = value


def _bucket_key(options: StoreOptions, key: str, value: str, _files: Files) -> None:
    options.config["sse_bucket_key_enabled"] = str(read_boolean(key, value)).lower()


def _gcs_default(options: StoreOptions, key: str, value: str, _files: Files) -> None:
    if not read_boolean(key, value):
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
#: The keys that stores understand; another cloud's are accepted and not used.
STORAGE_KEYS: Final = frozenset((*_S3, *_GCS, *_AZURE, *_PROXY_KEYS))


def storage_options(keys: Mapping[str, str]) -> BeginOptions:
    """Make the options of keys, for ``open_store``; those that are none of STORAGE_KEYS are passed over.

    Raises (when the store is opened):
        ConfigError: a malformed value, or a file that cannot be read.
    """

    def begin(scheme: str, files: Files) -> StoreOptions:
        found = StoreOptions()
        setters = _BY_SCHEME[scheme]
        for key, value in keys.items():
            if key in setters:
                setters[key](found, key, value, files)
        if scheme != "s3":
            _add_proxy(found, keys)
        return found

    return begin


def _add_proxy(found: StoreOptions, options: Mapping[str, str]) -> None:
    host, port, user, password = (options.get(key) for key in _PROXY_KEYS)
    if not any((host, port, user, password)):
        return
    if not host or not port or bool(user) != bool(password):
        raise ConfigError("storage.proxy: host and port are needed, and username and password both or neither")
    login = f"{user}:{password}@" if user else ""
    found.client["proxy_url"] = f"socks5h://{login}{host}:{port}"
