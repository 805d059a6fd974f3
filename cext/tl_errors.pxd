# The only place that turns a native status into a Python exception. Inline, so that each module carries it and none
# imports another at run time: `from tl_errors cimport check_status, error_of`.

from tl_core cimport (
    TL_BAD_ARGUMENT,
    TL_BAD_CRC,
    TL_NO_MEMORY,
    TL_OK,
    TL_OVER_LIMIT,
    tl_fault,
    tl_status,
    tl_status_name,
    tl_status_text,
)


cdef inline object error_of(tl_status status, const tl_fault *fault, object kind):
    """The exception for a status that is not TL_OK: ``kind`` (a CorruptDataError) for faults of the bytes."""
    from tierlog.errors import SizeLimitError

    text = tl_status_text(status).decode()
    if status == TL_NO_MEMORY:
        return MemoryError(text)
    if status == TL_BAD_ARGUMENT:
        return ValueError(text)
    if status == TL_OVER_LIMIT:
        kind = SizeLimitError
        text = f"{text} of {fault.expected} bytes"
    elif status == TL_BAD_CRC and fault.expected != fault.found:  # a check of ranges has no numbers
        text = f"{text}: computed 0x{fault.found & 0xffffffff:08x}, stored 0x{fault.expected & 0xffffffff:08x}"
    elif fault.expected or fault.found:
        text = f"{text}: expected {fault.expected}, found {fault.found}"
    if fault.record >= 0:
        text = f"record {fault.record}: {text}"
    return kind(
        text,
        fault=tl_status_name(status).decode(),
        position=fault.position,
        base_offset=fault.base_offset,
        record=fault.record,
        expected=fault.expected,
        found=fault.found,
    )


cdef inline int check_status(tl_status status, const tl_fault *fault, object kind) except -1:
    """Raises what ``status`` means; nothing for TL_OK."""
    if status == TL_OK:
        return 0
    raise error_of(status, fault, kind)
