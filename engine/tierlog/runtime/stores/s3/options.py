"""The opening of a bucket of S3: one set of options and one source of credentials, for reading and writing."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tierlog.runtime.machine.files import Files
from tierlog.runtime.stores.credentials.aws import AwsCredentials, FixedCredentials, read_key_file
from tierlog.runtime.stores.settings.options import StoreOptions

if TYPE_CHECKING:
    from obstore.store import S3Credential

#: obstore asks again when its keys are about to end in this time: soon after each request, and the answer is cached.
_ASK_AGAIN: Final = datetime.timedelta(seconds=310)


def credential_provider(credentials: AwsCredentials) -> Callable[[], S3Credential] | None:
    """Return the source in the form that obstore asks; None where obstore finds the same by itself."""
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
    """Return options for the crate under obstore in another process, which gets the keys that a file has now."""
    config = _placed(bucket, options)
    if options.credentials_file is not None:
        keys = read_key_file(options.credentials_file, files)
        config |= {"access_key_id": keys.access_key_id, "secret_access_key": keys.secret_access_key}
        config |= {"session_token": keys.session_token} if keys.session_token else {}
    if options.credentials_source == "anonymous":
        config["skip_signature"] = "true"
    return config


def _placed(bucket: str, options: StoreOptions) -> dict[str, str]:
    config = dict(options.config)
    if options.bucket_in_host and "endpoint" in config:
        # obstore takes the endpoint of such a bucket as it is.
        config["endpoint"] = with_host(config["endpoint"], bucket)
    return config


def obstore_config(bucket: str, options: StoreOptions, credentials: AwsCredentials) -> dict[str, str]:
    """Return options for obstore's store."""
    config = _placed(bucket, options)
    if isinstance(credentials, FixedCredentials) and credentials.keys() is None:
        config["skip_signature"] = "true"
    return config


def with_host(endpoint: str, bucket: str) -> str:
    """Return the endpoint with the bucket's name in front of its host."""
    scheme, _, rest = endpoint.partition("://")
    return f"{scheme}://{bucket}.{rest}"
