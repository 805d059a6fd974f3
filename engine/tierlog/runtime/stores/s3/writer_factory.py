"""From options to the write half of a bucket of S3."""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from typing import Final
from urllib.parse import urlsplit

from tierlog.errors import ConfigError
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.credentials.aws import AwsCredentials
from tierlog.runtime.stores.protocol.request_counts import RequestCounts
from tierlog.runtime.stores.s3.client import S3Client, S3Settings
from tierlog.runtime.stores.s3.faults import find_fault
from tierlog.runtime.stores.s3.options import S3Options, with_host
from tierlog.runtime.stores.s3.probe import ProbedS3Writer
from tierlog.runtime.stores.s3.requests import S3Requests
from tierlog.runtime.stores.settings.options import StoreOptions
from tierlog.runtime.stores.writing.client_factory import make_client

_REGION: Final = "us-east-1"


def make_s3_writer(
    bucket: str,
    folder: str,
    name: str,
    options: StoreOptions,
    credentials: AwsCredentials,
    machine: Machine,
    counts: RequestCounts,
) -> ProbedS3Writer:
    """The write half of a bucket; sends nothing yet."""
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
    client = S3Client(settings, make_client(name, options, find_fault, machine, counts, extra="s3"), credentials)
    batched = not given.is_set("disable_bulk_delete")
    return ProbedS3Writer(S3Requests(client, options.checksums), batch_deletes=batched)


def _bucket_url(bucket: str, region: str, given: S3Options, options: StoreOptions) -> str:
    """The address of the bucket, as obstore makes it."""
    endpoint = given.endpoint()
    in_host = given.is_set("virtual_hosted_style_request")
    if not endpoint:
        host = f"s3.{region}.amazonaws.com"
        return f"https://{bucket}.{host}" if in_host else f"https://{host}/{bucket}"
    if urlsplit(endpoint).scheme not in ("http", "https"):
        raise ConfigError("store.endpoint: an http or https URL expected")
    if options.bucket_in_host:
        return with_host(endpoint, bucket)
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
