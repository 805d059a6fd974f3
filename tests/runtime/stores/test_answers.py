"""Answers of S3, Google and Azure, good and hostile."""

from __future__ import annotations

import base64
import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierlog.errors import (
    ObjectConflictError,
    ObjectNotFoundError,
    StoreError,
    StorePermissionError,
    StoreUnavailableError,
)
from tierlog.runtime.stores.azure import writer as azure
from tierlog.runtime.stores.gcs import requests as gcs
from tierlog.runtime.stores.protocol.object_store import views_of
from tierlog.runtime.stores.protocol.store_writer import (
    PartSizes,
    combined_crc32c,
    combined_md5_etag,
    crc32c_base64,
    is_md5_etag,
    md5_digest,
    plain_etag,
)
from tierlog.runtime.stores.s3 import client as s3
from tierlog.runtime.stores.s3.messages import complete_body, delete_body, delete_faults, fits_xml, upload_page
from tierlog.runtime.stores.writing.faults import FaultReader, error_of, parse
from tierlog.runtime.stores.writing.http_client import HttpAnswer
from tierlog.runtime.stores.writing.retrying import ThrottledError


def answer(status: int, body: bytes = b"", **headers: str) -> HttpAnswer:
    return HttpAnswer(status, {name.replace("_", "-"): value for name, value in headers.items()}, body)


READERS: dict[str, FaultReader] = {"s3": s3.find_fault, "gcs": gcs.find_fault, "azure": azure.find_fault}


def xml(code: str, message: str = "") -> bytes:
    return f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()


def google(reason: str, message: str = "m") -> bytes:
    return json.dumps({"error": {"message": message, "errors": [{"reason": reason}]}}).encode()


@pytest.mark.parametrize(
    ("cloud", "status", "body", "kind"),
    [
        ("s3", 503, xml("SlowDown"), ThrottledError),
        ("s3", 429, b"", ThrottledError),
        ("s3", 500, xml("InternalError"), StoreUnavailableError),
        ("s3", 200, b"  <?xml version='1.0'?>" + xml("InternalError"), StoreUnavailableError),
        ("s3", 200, b"<?xml version='1.0'?>" + b" " * 9000 + xml("SlowDown"), ThrottledError),
        ("s3", 400, xml("RequestTimeout"), StoreUnavailableError),
        ("s3", 400, xml("BadDigest"), StoreUnavailableError),
        ("s3", 400, xml("EntityTooSmall"), StoreError),
        ("s3", 400, xml("ExpiredToken"), StorePermissionError),
        ("s3", 403, b"", StorePermissionError),
        ("s3", 404, xml("NoSuchBucket"), ObjectNotFoundError),
        ("s3", 412, b"", ObjectConflictError),
        ("s3", 409, xml("ConditionalRequestConflict"), StoreUnavailableError),
        ("s3", 400, b"not xml", StoreError),
        ("s3", 301, xml("PermanentRedirect"), StoreError),
        ("azure", 409, xml("BlobAlreadyExists"), ObjectConflictError),
        ("azure", 400, xml("Md5Mismatch"), StoreUnavailableError),
        ("azure", 400, xml("", "The MD5 doesn't match"), StoreUnavailableError),
        ("azure", 503, xml("ServerBusy"), ThrottledError),
        ("azure", 400, xml("InvalidBlobOrBlock"), StoreError),
        ("gcs", 403, google("forbidden"), StorePermissionError),
        ("gcs", 412, google("conditionNotMet"), ObjectConflictError),
        ("gcs", 400, google("invalid", 'Provided CRC32C "x" doesn\'t match calculated'), StoreUnavailableError),
        ("gcs", 400, google("invalid", "Invalid bucket name"), StoreError),
        ("gcs", 400, b'{"error": [1]}', StoreError),
        ("gcs", 503, b"Service Unavailable", ThrottledError),
    ],
)
def test_what_an_error_means(cloud: str, status: int, body: bytes, kind: type[StoreError]) -> None:
    """If this fails, a caller gives up what would have worked, or tries for ever what never will."""
    found = answer(status, body)
    fault = READERS[cloud](found)
    assert fault is not None
    assert type(error_of("s3://b/k", "PUT", found, fault)) is kind


def test_azures_code_where_there_is_no_body() -> None:
    """If this fails, a user who looks into a conflict of Azure's sees a status and no reason."""
    found = answer(409, b"", x_ms_error_code="BlobAlreadyExists")
    fault = azure.find_fault(found)
    assert fault is not None
    error = error_of("az://c/k", "PUT", found, fault)
    assert isinstance(error, ObjectConflictError)
    assert "BlobAlreadyExists" in str(error)


@pytest.mark.parametrize("cloud", READERS)
def test_a_good_answer_is_no_error(cloud: str) -> None:
    """If this fails, every success fails."""
    find_fault = READERS[cloud]
    assert find_fault(answer(200, b"<CompleteMultipartUploadResult/>")) is None
    assert find_fault(answer(204)) is None
    assert find_fault(answer(200, b"text that says <Error somewhere behind" + bytes(600))) is None


def test_what_a_store_asks_for() -> None:
    """If this fails, the region of a bucket, or the time to wait, is not told."""
    moved = answer(301, b"<Error><Code>PermanentRedirect</Code></Error>", x_amz_bucket_region="eu-west-9")
    assert "eu-west-9" in str(error_of("b", "PUT", moved, s3.find_fault(moved)))  # type: ignore[arg-type]
    slow = answer(503, b"", retry_after="7")
    error = error_of("b", "PUT", slow, s3.find_fault(slow))  # type: ignore[arg-type]
    assert isinstance(error, ThrottledError)
    assert error.after_seconds == 7
    elsewhere = answer(301, b"", x_amz_bucket_region="eu-west-9")
    assert str(error_of("b", "PUT", elsewhere, s3.find_fault(elsewhere))).endswith(  # type: ignore[arg-type]
        "status 301 : the bucket is in region eu-west-9"
    )


def test_hostile_xml() -> None:
    """If this fails, a bucket that somebody else answers for takes all memory, or reads files of this machine."""
    bomb = b'<!DOCTYPE a [<!ENTITY x "xxxxxxxxxx">]><a>&x;</a>'
    for body in (bomb, b"", b"<a>", b"\xff\xfe<a/>", b"<a" + b"<b>" * 1000):
        with pytest.raises(StoreError):
            parse(body)


@given(st.lists(st.text(min_size=1, max_size=20).filter(fits_xml), max_size=20))
def test_keys_come_through_a_deletion_as_they_are(keys: list[str]) -> None:
    """If this fails, a key with "&" or "<" removes another object, or none."""
    listed = [each.findtext("Key") for each in parse(delete_body(keys)).iter("Object")]
    assert [key.replace("\r\n", "\n").replace("\r", "\n") for key in keys] == listed


def test_what_a_batch_could_not_remove() -> None:
    """If this fails, an object that stays counts as removed."""
    body = (
        b'<DeleteResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Error><Key>a&amp;b</Key>'
        b"<Code>AccessDenied</Code><Message>no</Message></Error>"
        b"<Error><Key>gone</Key><Code>NoSuchKey</Code></Error></DeleteResult>"
    )
    ((key, fault),) = delete_faults(body)
    assert (key, fault.code) == ("a&b", "AccessDenied")
    assert isinstance(error_of("s3://b/a&b", "DELETE", answer(200), fault), StorePermissionError)
    assert list(delete_faults(b" ")) == []
    assert not fits_xml("a\x01b")
    assert not fits_xml("a\uffff")


def test_a_page_of_uploads() -> None:
    """If this fails, unfinished uploads are missed, or aborted too early."""
    body = b"""<ListMultipartUploadsResult><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>
    <NextKeyMarker>a%20b%2Fc</NextKeyMarker><NextUploadIdMarker>i2</NextUploadIdMarker>
    <Upload><Key>a+b</Key><UploadId>i1</UploadId><Initiated>2026-01-02T03:04:05.678Z</Initiated></Upload>
    </ListMultipartUploadsResult>"""
    page = upload_page(body)
    assert (page.next_key, page.next_id) == ("a b/c", "i2")
    assert [(each.key, each.upload_id, each.started_ms) for each in page.uploads] == [("a b", "i1", 1767323045678)]
    with pytest.raises(StoreError, match="not a time"):
        upload_page(body.replace(b"2026-01-02T03:04:05.678Z", b"yesterday"))


@given(st.lists(st.binary(min_size=1, max_size=50), min_size=1, max_size=20))
def test_checksums_of_parts(parts: list[bytes]) -> None:
    """If this fails, a good upload is refused, or a bad one taken, by what the store says of the whole."""
    views = [views_of([part]) for part in parts]
    etags = [f'"{md5_digest(view).hex()}"' for view in views]
    joined = b"".join(hashlib.md5(part).digest() for part in parts)
    assert combined_md5_etag(etags) == f"{hashlib.md5(joined).hexdigest()}-{len(parts)}"
    assert combined_md5_etag([*etags, '"no-md5"']) is None
    checksums = [crc32c_base64(view) for view in views]
    whole = b"".join(base64.b64decode(each) for each in checksums)
    assert combined_crc32c(checksums) == f"{crc32c_base64([memoryview(whole)])}-{len(parts)}"
    everything = b"".join(parts)
    assert crc32c_base64(views_of(list(parts))) == crc32c_base64([memoryview(everything)])
    assert is_md5_etag(etags[0])
    assert plain_etag('W/"ABC"') == "abc"
    assert parse(complete_body(etags, checksums)).find("Part") is not None


def test_the_checksums_of_the_rfc() -> None:
    """If this fails, no store takes what we send."""
    assert crc32c_base64([memoryview(b"123456789")]) == base64.b64encode(bytes.fromhex("e3069283")).decode()


@given(sizes=st.lists(st.integers(1, 10), min_size=1, max_size=8), missing=st.integers(1, 8), data=st.data())
def test_an_object_with_a_hole_is_never_whole(sizes: list[int], missing: int, data: st.DataObject) -> None:
    """If this fails, a lost part becomes an object that looks whole."""
    parts = PartSizes("k", 10)
    numbers = data.draw(st.permutations(range(1, len(sizes) + 1)))
    for number in numbers:
        if number != missing:
            parts.take(number, sizes[number - 1])
    came = [n for n in range(1, len(sizes) + 1) if n != missing]
    good = bool(came) and came == list(range(1, len(came) + 1)) and all(sizes[n - 1] == 10 for n in came[:-1])
    if good:
        assert parts.whole() == len(came)
    else:
        with pytest.raises(StoreError):
            parts.whole()


def test_a_redirect_is_refused_and_says_where_to() -> None:
    """An operator would see "status 307" and nothing of the endpoint that the configuration lacks."""
    answer = HttpAnswer(307, {"location": "https://user:s3cret@other.example:9000/b/k?X-Amz-Signature=5ec2e7"}, b"")
    for find_fault in READERS.values():
        fault = find_fault(answer)
        assert fault is not None
        _shows_where_to(str(error_of("s3://b/k", "PUT", answer, fault)))


def _shows_where_to(text: str) -> None:
    assert "it redirects to other.example:9000, which is not followed" in text
    assert "s3cret" not in text
    assert "5ec2e7" not in text
