"""The plugin's ``storage.*`` keys as the options of a store's client."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from pydantic import SecretStr

from tierlog.errors import ConfigError, StoreError
from tierlog.remote.config.storage_config import StorageConfig
from tierlog.runtime.machine.files import Files, read_secret_file
from tierlog.runtime.stores.credentials.aws import read_key_file
from tierlog.runtime.stores.protocol.store_writer import ChecksumMode
from tierlog.runtime.stores.settings.options import BeginOptions, StoreOptions, refuse_login

_CREDENTIAL_FILE_BYTES_MAX: Final = 1 << 20
_PROXY: Final = "store.proxy_url"


def storage_options(config: StorageConfig) -> BeginOptions:
    """Make the options of a configuration, for ``open_store``; keys of another cloud are passed over.

    Raises (when the store is opened):
        ConfigError: a login in a URL, malformed credentials, a file that cannot be read, or a SOCKS proxy, which
            nothing goes through.
    """

    def begin(scheme: str, files: Files) -> StoreOptions:
        found = StoreOptions()
        _BY_SCHEME[scheme](found, config, files)
        if scheme != "s3" and config.storage_proxy_host and _PROXY not in config.store_options:
            text = f"nothing goes through a SOCKS proxy: give an HTTP proxy as {_PROXY}, which then takes its place"
            raise ConfigError(f"storage.proxy.host: {text}")
        return found

    return begin


def _text(value: str | bool | SecretStr | None) -> str | None:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return str(value).lower() if isinstance(value, bool) else value


def _put(found: StoreOptions, **values: str | bool | SecretStr | None) -> None:
    """Set options of the client where there is a value."""
    found.config.update({name: text for name, value in values.items() if (text := _text(value)) is not None})


def _put_endpoint(found: StoreOptions, into: str, key: str, url: str | None) -> None:
    if url is not None:
        refuse_login(key, url)
        found.config[into] = url.rstrip("/")
        if url.startswith("http://"):
            found.client["allow_http"] = "true"


def _read_s3(found: StoreOptions, config: StorageConfig, files: Files) -> None:
    _put(
        found,
        region=config.storage_s3_region,
        access_key_id=config.storage_aws_access_key_id,
        secret_access_key=config.storage_aws_secret_access_key,
        session_token=config.storage_aws_session_token,
        server_side_encryption=config.storage_s3_server_side_encryption,
        sse_kms_key_id=config.storage_s3_server_side_encryption_kms_key_id,
        sse_bucket_key_enabled=config.storage_s3_server_side_encryption_bucket_key_enabled,
    )
    _put_endpoint(found, "endpoint", "storage.s3.endpoint.url", config.storage_s3_endpoint_url)
    if config.storage_s3_path_style_access_enabled is not None:
        found.bucket_in_host = not config.storage_s3_path_style_access_enabled
        _put(found, virtual_hosted_style_request=found.bucket_in_host)
    if config.storage_s3_api_call_timeout is not None:
        found.retry_timeout = timedelta(milliseconds=config.storage_s3_api_call_timeout)
    if config.storage_s3_api_call_attempt_timeout is not None:
        found.client["timeout"] = f"{config.storage_s3_api_call_attempt_timeout}ms"
    if config.storage_aws_credentials_file is not None:
        read_key_file(config.storage_aws_credentials_file, files, option="storage.aws.credentials.file")
        found.credentials_file = config.storage_aws_credentials_file
    found.credentials_source = config.storage_aws_credentials_provider_class or found.credentials_source
    found.storage_class = None if config.storage_s3_storage_class == "STANDARD" else config.storage_s3_storage_class
    if config.storage_s3_legacy_md5_plugin_enabled:
        found.checksums = ChecksumMode.MD5
    if not config.storage_aws_certificate_check_enabled:
        found.client["allow_invalid_certificates"] = "true"
    found.check_reads = config.storage_aws_checksum_check_enabled


def _read_gcs(found: StoreOptions, config: StorageConfig, files: Files) -> None:
    _put_endpoint(found, "base_url", "storage.gcs.endpoint.url", config.storage_gcs_endpoint_url)
    if config.storage_gcs_credentials_default is False:
        found.config["skip_signature"] = "true"
    if config.storage_gcs_credentials_json is not None:
        _put_account(found, "storage.gcs.credentials.json", config.storage_gcs_credentials_json.get_secret_value())
    if config.storage_gcs_credentials_path is not None:
        key, path = "storage.gcs.credentials.path", config.storage_gcs_credentials_path
        try:
            text = read_secret_file(key, path, files, limit_bytes=_CREDENTIAL_FILE_BYTES_MAX).decode("utf-8")
        except (StoreError, UnicodeDecodeError) as cause:
            raise ConfigError(f"{key}: cannot read {path}: {type(cause).__name__}") from cause
        _put_account(found, key, text)
    found.encryption_key = config.storage_gcs_encryption_kms_key_name


def _put_account(found: StoreOptions, key: str, text: str) -> None:
    try:
        account = json.loads(text)
    except ValueError:
        raise ConfigError(f"{key}: not JSON") from None  # the cause would quote the credentials
    if isinstance(account, dict) and "type" not in account and isinstance(account.get("access_token"), str):
        found.config["bearer_token"] = account["access_token"]
    else:
        found.config["service_account_key"] = text


def _read_azure(found: StoreOptions, config: StorageConfig, _files: Files) -> None:
    _put(
        found,
        account_name=config.storage_azure_account_name,
        account_key=config.storage_azure_account_key,
        sas_key=config.storage_azure_sas_token,
    )
    _put_endpoint(found, "endpoint", "storage.azure.endpoint.url", config.storage_azure_endpoint_url)
    if config.storage_azure_connection_string is not None:
        _put_connection(found, config.storage_azure_connection_string.get_secret_value())
    found.encryption_key = config.storage_azure_encryption_scope


def _put_connection(found: StoreOptions, text: str) -> None:
    key = "storage.azure.connection.string"
    pairs = (part.split("=", 1) for part in text.split(";") if "=" in part)
    parts = {name.strip().lower(): value.strip() for name, value in pairs}
    endpoint = parts.get("blobendpoint")
    if endpoint is None and "endpointsuffix" in parts and "accountname" in parts:
        protocol = parts.get("defaultendpointsprotocol", "https")
        endpoint = f"{protocol}://{parts['accountname']}.blob.{parts['endpointsuffix']}"
    if endpoint is not None and not endpoint.startswith(("http://", "https://")):
        raise ConfigError(f"{key}: an http or https URL expected")
    _put_endpoint(found, "endpoint", key, endpoint)
    _put(
        found,
        account_name=parts.get("accountname") or _account_of(endpoint),
        account_key=parts.get("accountkey"),
        sas_key=parts.get("sharedaccesssignature"),
    )
    if "account_name" not in found.config:
        raise ConfigError(f"{key}: AccountName is missing")


def _account_of(endpoint: str | None) -> str | None:
    """Return the account in an endpoint's name: a connection string with a SAS, as Azure's portal makes it, names none
    otherwise.
    """
    host = (endpoint or "").partition("://")[2].partition("/")[0]
    return host.partition(".")[0] if ".blob." in host else None


_BY_SCHEME: Final[dict[str, Callable[[StoreOptions, StorageConfig, Files], None]]] = {
    "s3": _read_s3,
    "gs": _read_gcs,
    "az": _read_azure,
}
