"""How a bucket of S3 is opened: one set of options and one source of credentials, for reading and writing."""

from __future__ import annotations

import datetime
import hashlib
import os
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from tierlog.errors import ConfigError
from tierlog.runtime.aws_credentials import AwsCredentials, FixedCredentials, choose_credentials, read_key_file
from tierlog.runtime.files import Files
from tierlog.runtime.http_opening import make_client
from tierlog.runtime.machine import Machine
from tierlog.runtime.request_counts import RequestCounts
from tierlog.runtime.s3_client import S3Client, S3Settings
from tierlog.runtime.s3_writer import S3Writer
from tierlog.runtime.store_options import StoreOptions

if TYPE_CHECKING:
    from obstore.store import S3Credential

_REGION: Final = "us-east-1"
#: obstore asks again when its keys are about to end in this time: soon after each request, and the answer is at hand.
_ASK_AGAIN: Final = datetime.timedelta(seconds=310)
_ENDPOINTS: Final = ("endpoint_url_s3", "endpoint_url", "endpoint")


class S3Options:
    """Options in obstore's words; what they leave open its environment says."""

    def __init__(self, config: Mapping[str, str]) -> None:
        self._config = config

    def find(self, *names: str) -> str | None:
        """The first that is set."""
        for where in (self._option, self._environment):
            for name in names:
                if found := where(name):
                    return found
        return None

    def _option(self, name: str) -> str | None:
        return self._config.get(name) or self._config.get(f"aws_{name}")

    def _environment(self, name: str) -> str | None:
        return os.environ.get(f"AWS_{name.upper()}")

    def is_set(self, name: str) -> bool:
        """Of a boolean."""
        return (self.find(name) or "").lower() in ("true", "1", "yes", "on", "y", "t")


def choose_s3_credentials(options: StoreOptions, machine: Machine) -> AwsCredentials:
    """The one source of the options. Raises ConfigError."""
    return choose_credentials(
        options.config,
        machine,
        source=options.credentials_source,
        file=options.credentials_file,
        region=S3Options(options.config).find("region", "default_region") or "",
    )


def credential_provider(credentials: AwsCredentials) -> Callable[[], S3Credential] | None:
    """The source as obstore asks for it; None where obstore finds the same by itself."""
    if isinstance(credentials, FixedCredentials):
        return None

    def give() -> S3Credential:
        keys = credentials.keys()
        assert keys is not None, "only fixed credentials can be none"
        return {
            "access_key_id": keys.access_key_id,
            "secret_access_key": keys.secret_access_key,
            "token": keys.session_token,
            "expires_at": datetime.datetime.now(datetime.UTC) + _ASK_AGAIN,
        }

    return give


def address_config(bucket: str, options: StoreOptions, files: Files) -> dict[str, str]:
    """What the crate under obstore is given in another process: a file of keys as it is now."""
    config = _placed(bucket, options)
    if options.credentials_file is not None:
        keys = read_key_file("storage.aws.credentials.file", options.credentials_file, files)
        config |= {"access_key_id": keys.access_key_id, "secret_access_key": keys.secret_access_key}
        config |= {"session_token": keys.session_token} if keys.session_token else {}
    if options.credentials_source == "anonymous":
        config["skip_signature"] = "true"
    return config


def _placed(bucket: str, options: StoreOptions) -> dict[str, str]:
    config = dict(options.config)
    if options.bucket_in_host and "endpoint" in config:
        # obstore takes the endpoint of such a bucket as it is.
        config["endpoint"] = _with_host(config["endpoint"], bucket)
    return config


def obstore_config(bucket: str, options: StoreOptions, credentials: AwsCredentials) -> dict[str, str]:
    """What obstore's own half is given."""
    config = _placed(bucket, options)
    if isinstance(credentials, FixedCredentials) and credentials.keys() is None:
        config["skip_signature"] = "true"
    return config


def _with_host(endpoint: str, bucket: str) -> str:
    scheme, _, rest = endpoint.partition("://")
    return f"{scheme}://{bucket}.{rest}"


def make_s3_writer(
    bucket: str,
    folder: str,
    name: str,
    options: StoreOptions,
    credentials: AwsCredentials,
    machine: Machine,
    counts: RequestCounts,
) -> S3Writer:
    """The write half. Nothing is asked of anybody yet."""
    given = S3Options(options.config)
    region = given.find("region", "default_region") or _REGION
    settings = S3Settings(
        name=name,
        bucket_url=_bucket_url(bucket, region, given, options),
        folder=f"{folder}/" if folder else "",
        region=region,
        unsigned_payload=given.is_set("unsigned_payload"),
        storage_class=options.storage_class,
        encryption=_encryption(given),
        customer_key=_customer_key(given),
        payer={"x-amz-request-payer": "requester"} if given.find("request_payer") else {},
    )
    client = S3Client(settings, make_client(name, options, machine, counts), credentials)
    batched = not given.is_set("disable_bulk_delete")
    return S3Writer(client, checksums=options.checksums, batch_deletes=batched)


def _bucket_url(bucket: str, region: str, given: S3Options, options: StoreOptions) -> str:
    """As obstore makes it."""
    endpoint = (given.find(*_ENDPOINTS) or "").rstrip("/")
    in_host = given.is_set("virtual_hosted_style_request")
    if not endpoint:
        host = f"s3.{region}.amazonaws.com"
        return f"https://{bucket}.{host}" if in_host else f"https://{host}/{bucket}"
    if urlsplit(endpoint).scheme not in ("http", "https"):
        raise ConfigError("store.endpoint: an http or https URL expected")
    if options.bucket_in_host:
        return _with_host(endpoint, bucket)
    return endpoint if in_host else f"{endpoint}/{bucket}"


def _encryption(given: S3Options) -> dict[str, str]:
    kind = given.find("server_side_encryption")
    if kind is None or kind == "sse-c":
        return {}
    headers = {"x-amz-server-side-encryption": kind}
    if key := given.find("sse_kms_key_id"):
        headers["x-amz-server-side-encryption-aws-kms-key-id"] = key
    if bucket_key := given.find("sse_bucket_key_enabled"):
        headers["x-amz-server-side-encryption-bucket-key-enabled"] = bucket_key.lower()
    return headers


def _customer_key(given: S3Options) -> dict[str, str]:
    key = given.find("sse_customer_key_base64")
    if key is None:
        return {}
    try:
        digest = hashlib.md5(b64decode(key, validate=True), usedforsecurity=False).digest()
    except ValueError:
        raise ConfigError("store.sse_customer_key_base64: not base64") from None
    prefix = "x-amz-server-side-encryption-customer-"
    return {f"{prefix}algorithm": "AES256", f"{prefix}key": key, f"{prefix}key-MD5": b64encode(digest).decode()}
