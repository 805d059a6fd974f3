"""Keys of the stores (the plugin's, and our own for encryption by the store)."""

from __future__ import annotations

from typing import Final

from tierlog.remote.config.values import (
    INT32_MAX,
    KafkaBoolean,
    KafkaInt,
    KeyGroup,
    Password,
    key,
)

DEFAULT_PART_BYTES: Final = 25 << 20
_S3_STORAGE_CLASSES: Final = (
    "STANDARD",
    "REDUCED_REDUNDANCY",
    "STANDARD_IA",
    "ONEZONE_IA",
    "INTELLIGENT_TIERING",
    "GLACIER",
    "DEEP_ARCHIVE",
    "OUTPOSTS",
    "GLACIER_IR",
    "SNOW",
    "EXPRESS_ONEZONE",
    "FSX_OPENZFS",
)


class StoreKeys(KeyGroup):
    """Keys that every kind of store has."""

    store_probe_enabled: KafkaBoolean = key(
        "store.probe.enabled",
        "When a storage manager starts, write and remove a few small objects, `<key.prefix>.tierlog-probe-…`, to find "
        "out what the store can do and what it permits; the result is logged once and shown as "
        "`tierlog_remote_store_info`. Missing rights, a missing bucket and unknown credentials make the start fail; a "
        "store "
        "that does not answer only gets a warning, and is asked again after the first copy. `false` for credentials "
        "that may only read.",
        default=True,
        own=True,
    )


class S3Keys(KeyGroup):
    """Keys of S3 and of stores that speak its protocol."""

    storage_s3_bucket_name: str | None = key("storage.s3.bucket.name", "Needed for `s3`.", not_empty=True)
    storage_s3_region: str | None = key("storage.s3.region", "Needed for `s3`, also with an endpoint of its own.")
    storage_s3_endpoint_url: str | None = key("storage.s3.endpoint.url", "URL of another server.", url=True)
    storage_s3_path_style_access_enabled: KafkaBoolean | None = key(
        "storage.s3.path.style.access.enabled", "Put the bucket into the path, not into the host name."
    )
    storage_s3_multipart_upload_part_size: KafkaInt = key(
        "storage.s3.multipart.upload.part.size",
        "Bytes of a part.",
        default=DEFAULT_PART_BYTES,
        minimum=5 << 20,
        maximum=INT32_MAX - 8,
    )
    storage_s3_storage_class: str = key(
        "storage.s3.storage.class",
        "Storage class of the objects that are written.",
        default="STANDARD",
        choices=_S3_STORAGE_CLASSES,
    )
    storage_s3_api_call_timeout: KafkaInt | None = key(
        "storage.s3.api.call.timeout", "Time limit of a call with its retries, ms.", minimum=1
    )
    storage_s3_api_call_attempt_timeout: KafkaInt | None = key(
        "storage.s3.api.call.attempt.timeout", "Time limit of one attempt, ms.", minimum=1
    )
    storage_s3_legacy_md5_plugin_enabled: KafkaBoolean = key(
        "storage.s3.legacy.md5.plugin.enabled",
        "Content-MD5 on deletes of many objects, for old servers.",
        default=False,
    )
    storage_s3_server_side_encryption: str | None = key(
        "storage.s3.server.side.encryption",
        "SSE-S3 (`AES256`) or SSE-KMS for the objects that are written; else the bucket's default.",
        own=True,
        choices=("AES256", "aws:kms", "aws:kms:dsse"),
    )
    storage_s3_server_side_encryption_kms_key_id: str | None = key(
        "storage.s3.server.side.encryption.kms.key.id", "The key of SSE-KMS; else the account's.", own=True
    )
    storage_s3_server_side_encryption_bucket_key_enabled: KafkaBoolean | None = key(
        "storage.s3.server.side.encryption.bucket.key.enabled", "One KMS request a bucket key.", own=True
    )
    storage_aws_access_key_id: Password | None = key(
        "storage.aws.access.key.id", "With the secret key, or neither.", not_empty=True
    )
    storage_aws_secret_access_key: Password | None = key(
        "storage.aws.secret.access.key", "With the key id.", not_empty=True
    )
    storage_aws_session_token: Password | None = key(
        "storage.aws.session.token", "Session token of temporary credentials.", not_empty=True
    )
    storage_aws_credentials_file: str | None = key(
        "storage.aws.credentials.file", "Properties with the three keys above; excludes them."
    )
    storage_aws_credentials_provider_class: str | None = key(
        "storage.aws.credentials.provider.class",
        "Where credentials come from and nowhere else: `default`, `environment`, `profile`, `web-identity`, "
        "`container`, `instance`, `anonymous`, or the AWS SDK's class of one of these. Excludes static keys.",
        not_empty=True,
    )
    storage_aws_certificate_check_enabled: KafkaBoolean = key(
        "storage.aws.certificate.check.enabled", "`false` trusts any certificate.", default=True
    )
    storage_aws_checksum_check_enabled: KafkaBoolean = key(
        "storage.aws.checksum.check.enabled",
        "Compare each whole object that is read (manifests and the like) with the checksum that the store keeps of it, "
        "by one more request. A range, by which logs and indexes are read, has none in S3: GCM's tags and the batches' "
        "own checksums cover those. Writes are confirmed independently of this key: `store.checksums`.",
        default=False,
    )


class GcsKeys(KeyGroup):
    """Keys of Google Cloud Storage."""

    storage_gcs_bucket_name: str | None = key("storage.gcs.bucket.name", "Needed for `gcs`.", not_empty=True)
    storage_gcs_endpoint_url: str | None = key("storage.gcs.endpoint.url", "URL of another server.", url=True)
    storage_gcs_resumable_upload_chunk_size: KafkaInt = key(
        "storage.gcs.resumable.upload.chunk.size",
        "Bytes of a part.",
        default=DEFAULT_PART_BYTES,
        minimum=1 << 18,
        maximum=INT32_MAX,
        multiple_of=1 << 18,
    )
    storage_gcs_credentials_default: KafkaBoolean | None = key(
        "storage.gcs.credentials.default", "The environment's chain; `false` is none. One of the three is needed."
    )
    storage_gcs_credentials_json: Password | None = key(
        "storage.gcs.credentials.json", "A service account, or an object with `access_token`."
    )
    storage_gcs_credentials_path: str | None = key("storage.gcs.credentials.path", "The same in a file.")
    storage_gcs_encryption_kms_key_name: str | None = key(
        "storage.gcs.encryption.kms.key.name",
        "Cloud KMS key for the objects that are written; else the bucket's.",
        own=True,
    )


class AzureKeys(KeyGroup):
    """Keys of Azure Blob Storage."""

    storage_azure_container_name: str | None = key(
        "storage.azure.container.name", "Needed for `azure`.", not_empty=True
    )
    storage_azure_account_name: str | None = key(
        "storage.azure.account.name", "This or a SAS token, without a connection string.", not_empty=True
    )
    storage_azure_account_key: Password | None = key("storage.azure.account.key", "Shared key.")
    storage_azure_sas_token: Password | None = key(
        "storage.azure.sas.token", "This or an account name, without a connection string."
    )
    storage_azure_connection_string: Password | None = key(
        "storage.azure.connection.string", "Excludes name, key, token and endpoint."
    )
    storage_azure_endpoint_url: str | None = key(
        "storage.azure.endpoint.url", "Else `https://<account>.blob.core.windows.net`.", url=True
    )
    storage_azure_upload_block_size: KafkaInt = key(
        "storage.azure.upload.block.size",
        "Bytes of a block.",
        default=DEFAULT_PART_BYTES,
        minimum=100 << 10,
        maximum=INT32_MAX,
    )
    storage_azure_encryption_scope: str | None = key(
        "storage.azure.encryption.scope",
        "Encryption scope of the objects that are written; else the container's.",
        own=True,
    )


class ProxyAndFileKeys(KeyGroup):
    """Keys of a SOCKS5 proxy for Google and Azure, and of the file store."""

    storage_proxy_host: str | None = key("storage.proxy.host", "Host of a SOCKS5 proxy; needs the port.")
    storage_proxy_port: KafkaInt | None = key("storage.proxy.port", "Port of the proxy.", minimum=0, maximum=65_535)
    storage_proxy_username: Password | None = key("storage.proxy.username", "With the password, or neither.")
    storage_proxy_password: Password | None = key("storage.proxy.password", "With the username.")
    storage_root: str | None = key(
        "storage.root", "Directory of `filesystem`; needed for it, must exist and be writable.", not_empty=True
    )
    storage_overwrite_enabled: KafkaBoolean = key(
        "storage.overwrite.enabled", "Not used, as in the plugin: writes replace.", default=False
    )
