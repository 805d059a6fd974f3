"""The keys below ``store.``: ours, those of the HTTP client, and each store's own, in obstore's words.

Tables, by which options are read and of which the reference page is made: a key that is read is on the page. Values
that obstore reads stay text, and it checks them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tierlog.config_keys import Duration, key, nearest_name, rows
from tierlog.errors import ConfigError


@dataclass(frozen=True)
class OwnKeys:
    """Read by this package itself."""

    max_retries: int | None = key(
        "Tries of a request after the first one; not counted unless given.", minimum=0, maximum=100
    )
    retry_timeout: Duration = key(
        "How long a request is tried again that the store throttles (429, 503), fails (5xx) or does not answer: no try "
        "begins later than this after the first one. A request keeps its signature: below 5 minutes.",
        default="90s",
    )
    checksums: str = key(
        "Checksums of writes to S3: `auto` begins with CRC-32C and goes over to MD5 where the store does not know it.",
        default="auto",
        choices=("auto", "crc32c", "md5", "none"),
    )
    storage_class: str | None = key(
        "Storage class of objects written to S3 or Google, access tier on Azure; not checked."
    )
    durable: bool = key(
        "Files of a folder are fsynced, and the folder behind them. `false` may lose finished segments with the power.",
        default=True,
    )


@dataclass(frozen=True)
class ClientKeys:
    """Keys of the HTTP client. All but those of HTTP/2, pools and addresses hold for reading and writing."""

    timeout: Duration = key("Longest time of a read; of a write, the longest pause without a byte.", default="30s")
    connect_timeout: Duration = key("Longest time of an attempt to connect.", default="5s")
    read_timeout: Duration | None = key("Longest pause while reading.")
    allow_http: bool = key("Allow requests without TLS. An endpoint of `http://` switches it on.", default=False)
    allow_invalid_certificates: bool = key("Trust any certificate.", default=False)
    root_certificate: str | None = key("PEM of one more authority to trust.")
    proxy_url: str | None = key("`http://` or `https://`; nothing goes through a SOCKS proxy.")
    proxy_ca_certificate: str | None = key("PEM of the proxy's authority; reading only.")
    proxy_excludes: str | None = key("Hosts that are reached without the proxy, by comma; reading only.")
    user_agent: str | None = key("How requests name their sender.")
    default_content_type: str | None = key("Without effect: written objects have their own.")
    http1_only: bool = key("Read by HTTP/1.1 alone; writing always does.", default=True)
    http2_only: bool = key("Read by HTTP/2 alone.", default=False)
    http2_keep_alive_interval: Duration | None = key("Time between pings of HTTP/2 while reading.")
    http2_keep_alive_timeout: Duration | None = key("Longest wait for the answer to such a ping.")
    http2_keep_alive_while_idle: bool | None = key("Ping connections that nothing is read from, too.")
    pool_idle_timeout: Duration | None = key("Time for which an idle connection for reading stays open.")
    pool_max_idle_per_host: str | None = key("Largest number of idle connections for reading.")
    randomize_addresses: bool | None = key("Read from any of a host name's addresses, not always from the first.")


@dataclass(frozen=True)
class S3ClientKeys:
    """Keys of S3 and of stores that speak its protocol."""

    region: str = key("Region of the bucket; `default_region` where nothing else gives one.", default="us-east-1")
    default_region: str | None = key("See `region`.")
    endpoint: str | None = key("Address of another server: an http or https URL.")
    aws_endpoint_url_s3: str | None = key("The same; it wins over `endpoint`.")
    virtual_hosted_style_request: bool = key("The bucket is in the endpoint's host name.", default=False)
    s3_express: bool = key("The bucket is one of S3 Express One Zone; reading only.", default=False)
    access_key_id: str | None = key("Id of a static key; needs the secret one.")
    secret_access_key: str | None = key("Secret: the static key.")
    session_token: str | None = key("Secret: the token of temporary keys.")
    skip_signature: bool = key("Send requests unsigned, without an identity.", default=False)
    role_arn: str | None = key("Role that a web identity takes.")
    role_session_name: str | None = key("Name of a web identity's session.")
    web_identity_token_file: str | None = key("Path of the token of a web identity.")
    sts_endpoint: str | None = key("Where a web identity is exchanged.")
    container_credentials_relative_uri: str | None = key("Where a container gets its role's keys: a path.")
    container_credentials_full_uri: str | None = key("Where a container gets its role's keys: a URL.")
    container_authorization_token_file: str | None = key(
        "Path of the token that a container shows for its role's keys."
    )
    metadata_endpoint: str = key("Where a machine gets its role's keys.", default="http://169.254.169.254")
    imdsv1_fallback: bool = key("Ask for a machine's role by the old protocol too.", default=False)
    request_payer: bool = key("The reader pays for requests.", default=False)
    unsigned_payload: bool = key("Leave bodies out of signatures, over http too.", default=False)
    disable_bulk_delete: bool = key("One request for each object removed.", default=False)
    server_side_encryption: str | None = key("How the server encrypts: `AES256`, `aws:kms`, `aws:kms:dsse` or `sse-c`.")
    sse_kms_key_id: str | None = key("Id of the KMS key by which the server encrypts.")
    sse_bucket_key_enabled: bool | None = key("Whether the bucket's own key stands in for the KMS key.")
    sse_customer_key_base64: str | None = key("Secret: the key of `sse-c`.")
    checksum_algorithm: str | None = key("Without effect: see `store.checksums`.")
    conditional_put: str | None = key("Without effect: they are sent, and the store's answer is probed.")
    copy_if_not_exists: str | None = key("Without effect: nothing is copied within a store.")
    disable_tagging: str | None = key("Without effect: nothing is tagged.")


@dataclass(frozen=True)
class GcsClientKeys:
    """Keys of Google Cloud Storage."""

    base_url: str | None = key("Address of another server: an http or https URL.")
    service_account: str | None = key("Path of a service account's file.")
    service_account_key: str | None = key("Secret: its content.")
    application_credentials: str | None = key("Path of the file of application credentials.")
    bearer_token: str | None = key("Secret: a token.")
    skip_signature: bool = key("Send requests unsigned, without an identity.", default=False)


@dataclass(frozen=True)
class AzureClientKeys:
    """Keys of Azure Blob Storage."""

    account_name: str | None = key("Name of the storage account.")
    account_key: str | None = key("Secret: shared key.")
    sas_key: str | None = key("Secret: shared access signature.")
    token: str | None = key("Secret: a bearer token.")
    endpoint: str | None = key("Address of another server: an http or https URL.")
    client_id: str | None = key("Id of an application or a managed identity.")
    client_secret: str | None = key("Secret: the password of an application.")
    tenant_id: str | None = key("Directory of an application.")
    authority_host: str | None = key("Address of the server that issues tokens.")
    credential_type: str | None = key("The one kind of credentials to use.")
    object_id: str | None = key("Object id of a managed identity.")
    msi_endpoint: str | None = key("Where a managed identity gets its tokens.")
    msi_resource_id: str | None = key("Resource id of a managed identity.")
    federated_token_file: str | None = key("Path of the token of a workload identity.")
    use_azure_cli: bool = key("Take the command line's token.", default=False)
    use_emulator: bool = key("The store is Azurite.", default=False)
    use_fabric_endpoint: bool = key("Use Microsoft Fabric's addresses.", default=False)
    fabric_token_service_url: str | None = key("Where Fabric gives tokens.")
    fabric_workload_host: str | None = key("Host of Fabric's workload.")
    fabric_session_token: str | None = key("Secret: the token of Fabric's session.")
    fabric_cluster_identifier: str | None = key("Id of Fabric's cluster.")
    encryption_key: str | None = key("Secret: a key of the customer's, in base64; reading only.")
    skip_signature: bool = key("Send requests unsigned, without an identity.", default=False)
    disable_tagging: str | None = key("Without effect: nothing is tagged.")


#: Each store's own, by the scheme of its URLs.
KEYS_BY_SCHEME: Final[Mapping[str, type[object]]] = {"s3": S3ClientKeys, "gs": GcsClientKeys, "az": AzureClientKeys}
_ALL_NAMES: Final = frozenset(name for table in (OwnKeys, ClientKeys, *KEYS_BY_SCHEME.values()) for name in rows(table))
#: What obstore lets stand in front of a store's own keys.
_BRANDS: Final = ("aws_", "google_", "azure_storage_", "azure_")


def plain_name(given: str) -> str:
    """Return the name that the tables have for ``store.<key>``."""
    return given.removeprefix("store.").lower().replace(".", "_")


def check_known(given: str) -> None:
    """Raise ConfigError for a key that no store knows, with the nearest name."""
    name = plain_name(given)
    if name not in _ALL_NAMES and not name.startswith(_BRANDS):
        raise unknown_key(given)


def unknown_key(given: str, scheme: str | None = None) -> ConfigError:
    """Make the error for a key that is not known; names the nearest that a store of this scheme knows, or any store."""
    tables = (OwnKeys, ClientKeys, KEYS_BY_SCHEME[scheme]) if scheme else ()
    known = [name for table in tables for name in rows(table)] or _ALL_NAMES
    nearest = nearest_name(plain_name(given), known)
    return ConfigError(f"unknown store option {given}; the nearest known one is store.{nearest}")
