"""Topic ids as kio has them and as the rest of this package has them."""

from __future__ import annotations

import uuid

from tierlog.remote.api import ZERO_UUID, Uuid


def topic_id_of(wire_id: uuid.UUID | None) -> Uuid:
    """The id of a request's field; ZERO_UUID where kio says None."""
    return ZERO_UUID if wire_id is None else Uuid(wire_id.bytes)


def wire_id_of(topic_id: Uuid) -> uuid.UUID | None:
    """The id for a response's field; None for ZERO_UUID, which kio writes as zeros."""
    return None if topic_id == ZERO_UUID else uuid.UUID(bytes=topic_id.raw)
