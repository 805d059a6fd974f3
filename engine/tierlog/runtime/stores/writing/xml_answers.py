"""Answers in XML, as S3 and Azure send them. They are untrusted."""

from __future__ import annotations

from xml.etree import ElementTree

from tierlog.errors import StoreError
from tierlog.runtime.stores.writing.faults import MESSAGE_CHARACTERS_MAX, StoreFault


def parse(body: bytes) -> ElementTree.Element:
    """The root of an answer, without namespaces. Raises StoreError: no XML, or one with a document type.

    While it works on a completion, S3 sends spaces, before the answer or in it.
    """
    body = body.lstrip()
    if b"<!DOCTYPE" in body or b"<!ENTITY" in body:
        raise StoreError("an answer with a document type, which no store sends")
    try:
        root = ElementTree.fromstring(body)  # noqa: S314 - no document type, so no entities
    except (ElementTree.ParseError, ValueError) as cause:
        raise StoreError(f"an answer that is not XML: {cause}") from None
    for each in root.iter():
        each.tag = each.tag.rpartition("}")[2]
    return root


def text_of(element: ElementTree.Element, name: str) -> str:
    """The text of a child; "" if it is not there."""
    return element.findtext(name) or ""


def fault_of(element: ElementTree.Element) -> StoreFault:
    """The code and the message of an ``Error``, whose meaning is still to be told."""
    return StoreFault(text_of(element, "Code"), text_of(element, "Message")[:MESSAGE_CHARACTERS_MAX])


def find_xml_fault(body: bytes) -> StoreFault | None:
    """The error that a body is; None for any other one."""
    try:
        root = parse(body)
    except StoreError:
        return None
    return fault_of(root) if root.tag == "Error" else None
