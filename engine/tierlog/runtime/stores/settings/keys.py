"""The keys below ``store.``: ours, those of the HTTP client, and each store's own, in obstore's words.

One table, by which options are read and of which the reference page is made: a key that is read is on the page.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tierlog.errors import ConfigError


@dataclass(frozen=True, slots=True)
class StoreKey:
    """One key.

    Args:
        name: Behind ``store.``; "." and "_" are one.
        meaning: What it says, for the reference page.
        default: As text; "" for none.
        allowed: The values that it takes, for the reference page.
    """

    name: str
    meaning: str
    default: str = ""
    allowed: str = ""


#: Read by this package itself.
OWN_KEYS: Final = (
    StoreKey("max_retries", "Tries of a request after the first one; not counted unless given.", "", "0 … 100"),
    StoreKey(
        "retry_timeout",
        "How long a request is tried again that the store throttles (429, 503), fails (5xx) or does not answer: no try "
        "begins later than this after the first one. A request keeps its signature: below 5 minutes.",
        "90s",
        "as `30s`, `500ms`, `2m`",
    ),
    StoreKey(
        "checksums",
        "Checksums of writes to S3: `auto` begins with CRC-32C and goes over to MD5 where the store does not know it.",
        "auto",
        "`auto`, `crc32c`, `md5`, `none`",
    ),
    StoreKey("storage_class", "Storage class of what is written to S3 or Google, access tier on Azure; not checked."),
    StoreKey(
        "durable",
        "Files of a folder are fsynced, and the folder behind them. `false` may lose finished segments with the power.",
        "true",
        "`true`, `false`",
    ),
)
_DURATION: Final = "as `30s`, `500ms`"
_BOOLEAN: Final = "`true`, `false`"
#: Of the HTTP client. Those that name none of HTTP/2, pools and addresses hold for reading and writing.
CLIENT_KEYS: Final = (
    StoreKey("timeout", "Longest time of a read; of a write, the longest pause without a byte.", "30s", _DURATION),
    StoreKey("connect_timeout", "Longest time of an attempt to connect.", "5s", _DURATION),
    StoreKey("read_timeout", "Longest pause while reading.", allowed=_DURATION),
    StoreKey("allow_http", "Allow requests without TLS. An endpoint of `http://` switches it on.", "false", _BOOLEAN),
    StoreKey("allow_invalid_certificates", "Trust any certificate.", "false", _BOOLEAN),
    StoreKey("root_certificate", "PEM of one more authority to trust."),
    StoreKey("proxy_url", "`http://`, or `socks5h://` (writing then needs the package aiohttp-socks)."),
    StoreKey("proxy_ca_certificate", "PEM of the proxy's authority; reading only."),
    StoreKey("proxy_excludes", "Hosts that are reached without the proxy, by comma; reading only."),
    StoreKey("user_agent", "How requests name their sender."),
    StoreKey("default_content_type", "Without effect: what is written has its own."),
    StoreKey("http1_only", "Read by HTTP/1.1 alone; writing always does.", "true", _BOOLEAN),
    StoreKey("http2_only", "Read by HTTP/2 alone.", "false", _BOOLEAN),
    StoreKey("http2_keep_alive_interval", "Time between pings of HTTP/2 while reading.", allowed=_DURATION),
    StoreKey("http2_keep_alive_timeout", "Longest wait for the answer to such a ping.", allowed=_DURATION),
    StoreKey("http2_keep_alive_while_idle", "Ping connections that nothing is read from, too.", allowed=_BOOLEAN),
    StoreKey("pool_idle_timeout", "How long an idle connection for reading is kept.", allowed=_DURATION),
    StoreKey("pool_max_idle_per_host", "Largest number of idle connections for reading."),
    StoreKey(
        "randomize_addresses", "Read from any of a host name's addresses, not always from the first.", allowed=_BOOLEAN
    ),
)
_NO_TAGS: Final = StoreKey("disable_tagging", "Without effect: nothing is tagged.")
_S3_KEYS: Final = (
    StoreKey("region", "Region of the bucket; `default_region` where nothing else gives one.", "us-east-1"),
    StoreKey("default_region", "See `region`."),
    StoreKey("endpoint", "Address of another server: an http or https URL."),
    StoreKey("aws_endpoint_url_s3", "The same; it wins over `endpoint`."),
    StoreKey("virtual_hosted_style_request", "The bucket is in the endpoint's host name.", "false", _BOOLEAN),
    StoreKey("s3_express", "The bucket is one of S3 Express One Zone; reading only.", "false", _BOOLEAN),
    StoreKey("access_key_id", "Id of a static key; needs the secret one."),
    StoreKey("secret_access_key", "Secret: the static key."),
    StoreKey("session_token", "Secret: the token of temporary keys."),
    StoreKey("skip_signature", "Send requests unsigned, as nobody.", "false", _BOOLEAN),
    StoreKey("role_arn", "Role that a web identity takes."),
    StoreKey("role_session_name", "Name of a web identity's session."),
    StoreKey("web_identity_token_file", "Path of the token of a web identity."),
    StoreKey("sts_endpoint", "Where a web identity is exchanged."),
    StoreKey("container_credentials_relative_uri", "Where a container gets its role's keys: a path."),
    StoreKey("container_credentials_full_uri", "Where a container gets its role's keys: a URL."),
    StoreKey("container_authorization_token_file", "Path of the token that a container shows for its role's keys."),
    StoreKey("metadata_endpoint", "Where a machine gets its role's keys.", "http://169.254.169.254"),
    StoreKey("imdsv1_fallback", "Ask for a machine's role by the old protocol too.", "false", _BOOLEAN),
    StoreKey("request_payer", "The reader pays for requests.", "false", _BOOLEAN),
    StoreKey("unsigned_payload", "Leave bodies out of signatures, over http too.", "false", _BOOLEAN),
    StoreKey("disable_bulk_delete", "One request for each object removed.", "false", _BOOLEAN),
    StoreKey(
        "server_side_encryption",
        "How the server encrypts: `AES256`, `aws:kms`, `aws:kms:dsse` or `sse-c`.",
    ),
    StoreKey("sse_kms_key_id", "Id of the KMS key by which the server encrypts."),
    StoreKey("sse_bucket_key_enabled", "Whether the bucket's own key stands in for the KMS key.", "", _BOOLEAN),
    StoreKey("sse_customer_key_base64", "Secret: the key of `sse-c`."),
    StoreKey("checksum_algorithm", "Without effect: see `store.checksums`."),
    StoreKey("conditional_put", "Without effect: they are sent, and what the store does is found out."),
    StoreKey("copy_if_not_exists", "Without effect: nothing is copied within a store."),
    _NO_TAGS,
)
_GCS_KEYS: Final = (
    StoreKey("base_url", "Address of another server: an http or https URL."),
    StoreKey("service_account", "Path of a service account's file."),
    StoreKey("service_account_key", "Secret: its content."),
    StoreKey("application_credentials", "Path of the file of application credentials."),
    StoreKey("bearer_token", "Secret: a token."),
    StoreKey("skip_signature", "Send requests unsigned, as nobody.", "false", _BOOLEAN),
)
_AZURE_KEYS: Final = (
    StoreKey("account_name", "Name of the storage account."),
    StoreKey("account_key", "Secret: shared key."),
    StoreKey("sas_key", "Secret: shared access signature."),
    StoreKey("token", "Secret: a bearer token."),
    StoreKey("endpoint", "Address of another server: an http or https URL."),
    StoreKey("client_id", "Id of an application or a managed identity."),
    StoreKey("client_secret", "Secret: the password of an application."),
    StoreKey("tenant_id", "Directory of an application."),
    StoreKey("authority_host", "Address of who gives tokens."),
    StoreKey("credential_type", "The one kind of credentials to use."),
    StoreKey("object_id", "Object id of a managed identity."),
    StoreKey("msi_endpoint", "Where a managed identity gets its tokens."),
    StoreKey("msi_resource_id", "Resource id of a managed identity."),
    StoreKey("federated_token_file", "Path of the token of a workload identity."),
    StoreKey("use_azure_cli", "Take the command line's token.", "false", _BOOLEAN),
    StoreKey("use_emulator", "The store is Azurite.", "false", _BOOLEAN),
    StoreKey("use_fabric_endpoint", "Use Microsoft Fabric's addresses.", "false", _BOOLEAN),
    StoreKey("fabric_token_service_url", "Where Fabric gives tokens."),
    StoreKey("fabric_workload_host", "Host of Fabric's workload."),
    StoreKey("fabric_session_token", "Secret: the token of Fabric's session."),
    StoreKey("fabric_cluster_identifier", "Id of Fabric's cluster."),
    StoreKey("encryption_key", "Secret: a key of the customer's, in base64; reading only."),
    StoreKey("skip_signature", "Send requests unsigned, as nobody.", "false", _BOOLEAN),
    _NO_TAGS,
)
#: Each store's own, by the scheme of its URLs.
KEYS_BY_SCHEME: Final[Mapping[str, tuple[StoreKey, ...]]] = {"s3": _S3_KEYS, "gs": _GCS_KEYS, "az": _AZURE_KEYS}
CLIENT_NAMES: Final = frozenset(key.name for key in CLIENT_KEYS)
_ALL_NAMES: Final = frozenset(key.name for keys in (OWN_KEYS, CLIENT_KEYS, *KEYS_BY_SCHEME.values()) for key in keys)
#: What obstore lets stand in front of a store's own keys.
_BRANDS: Final = ("aws_", "google_", "azure_storage_", "azure_")


def plain_name(key: str) -> str:
    """The name that the tables have for ``store.<key>``."""
    return key.removeprefix("store.").lower().replace(".", "_")


def check_known(key: str) -> None:
    """Raises ConfigError for a key that no store knows, with the nearest name."""
    name = plain_name(key)
    if name not in _ALL_NAMES and not name.startswith(_BRANDS):
        raise unknown_key(key)


def unknown_key(key: str, scheme: str | None = None) -> ConfigError:
    """The error for a key that is not known; names the nearest that a store of this scheme knows, or any store."""
    keys = (*OWN_KEYS, *CLIENT_KEYS, *KEYS_BY_SCHEME[scheme]) if scheme else None
    names = sorted(each.name for each in keys) if keys else sorted(_ALL_NAMES)
    nearest = difflib.get_close_matches(plain_name(key), names, n=1, cutoff=0.0)[0]
    return ConfigError(f"unknown store option {key}; the nearest known one is store.{nearest}")
