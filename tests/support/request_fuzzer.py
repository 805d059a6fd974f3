"""Fuzzes the reading of requests with atheris: ``python -m tests.support.request_fuzzer [LIBFUZZER OPTION…]``.

Any bytes are a request or MalformedRequestError; nothing else is raised, and what both decoders read is the same.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["tierlog.broker.protocol"]):
    from tierlog.broker.protocol.decoding import Cursor, MalformedRequestError, decoder_of
    from tierlog.broker.protocol.requests import read_body, read_header
    from tierlog.broker.protocol.responses import encode_response  # noqa: F401 - its imports are instrumented too


def read_one(data: bytes) -> None:
    """Read a frame, and once more with the decoder that takes anything."""
    frame = memoryview(data)
    try:
        header = read_header(frame)
        request = read_body(header, frame)
    except MalformedRequestError:
        return
    again = decoder_of(type(request)).read(Cursor(frame, header.body_position))
    # A number that is no number is not equal to itself.
    assert again == request or "nan" in repr(request)


if __name__ == "__main__":
    atheris.Setup(sys.argv, read_one)
    atheris.Fuzz()
