"""Errors of reading, as a caller sees them."""

from __future__ import annotations

import pytest
from obstore.exceptions import GenericError

from tierlog.errors import StoreError, StorePermissionError, StoreUnavailableError
from tierlog.runtime.stores.reading.obstore_errors import short_text, translate

#: As S3 sends it, and as servers do that know no line ends.
HEADS = ('<?xml version="1.0" encoding="UTF-8"?>\n', "<?xml version='1.0'?>", '<?xml version="1.0"?>', "")


def told(head: str, code: str, status: str = "400 Bad Request") -> GenericError:
    url = "http://store/b?list-type=2&prefix=x&X-Amz-Signature=5ec2e7"
    body = f"{head}<Error><Code>{code}</Code><Message>it says why</Message></Error>"
    return GenericError(
        f"Generic S3 error: Error performing GET {url} in 1ms - Server returned non-2xx status code: {status}: {body}"
        "\n\nDebug source:\nsecrets"
    )


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("ExpiredToken", StorePermissionError),
        ("InvalidAccessKeyId", StorePermissionError),
        ("RequestTimeout", StoreUnavailableError),
        ("EntityTooLarge", StoreError),
    ],
)
def test_the_code_tells_and_stays_in_the_message(head: str, code: str, kind: type[StoreError]) -> None:
    """If this fails, credentials that expired while a consumer reads are "400 Bad Request: <?…", and no more."""
    error = translate(told(head, code), "s3://b/k")
    assert type(error) is kind
    assert code in str(error)
    assert "it says why" in str(error)


@pytest.mark.parametrize("head", HEADS)
def test_no_query_of_a_url_is_shown(head: str) -> None:
    """If this fails, a signature that is good for an hour is in the log."""
    text = short_text(told(head, "AccessDenied"))
    assert "http://store/b?… in 1ms" in text
    assert "5ec2e7" not in text
    assert "secrets" not in text
    assert "sig=abc" not in short_text(GenericError("az: error sending request for url (https://a.net/c/k?sig=abc)"))
