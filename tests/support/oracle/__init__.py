"""The oracle: record batches read in plain Python on ``struct``, slow and obvious, by
docs/formats/log-files.md, Record batch.

What belongs here: what is *right*, so that the native core can be held against it, for good bytes and for bad, down
to which error is raised and where. What does not belong here: speed, and anything that production calls.

Faults carry the names of ``tierlog/status.h``. ``position`` is the byte position of the batch in the file, however
deep the fault lies; ``base_offset`` is that of the batch header (-1 where even that is not there); ``record`` is the
index of the record in its batch, or -1 where the batch as a whole is at fault.

**The order of checks is part of the contract.** The first that fails is the one that is raised.

1. The entry (``batches.parse_header``), at the position of each batch:

   a. fewer than 17 bytes left: the data end inside a batch (*partial*).
   b. the length field below 14 → BAD_SIZE.
   c. when records are decoded: the entry is larger than ``decompressed_limit`` → OVER_LIMIT.
   d. the entry runs past the end of the data: *partial*.
   e. magic not 0, 1 or 2 → BAD_MAGIC.
   f. the length field below the minimum of its magic (14, 22, 49), or 12 more than it does not fit an int32 → BAD_SIZE.

   *Partial* is no fault while more data may come. At the end of the data it is TRUNCATED, unless the caller allows it
   (the active segment of a live log); ``base_offset`` is -1 in case a, and that of the header in case d.

   A scan goes no further than this, and leaves out c: a wrong checksum is a column of it.

2. The header, when records are decoded:

   a. base offset < 0, last offset delta < 0, or their sum above 2^63 - 2 → BAD_OFFSET.
   b. base offset below what came before (offsets rise across the data; gaps are legal) or below ``least_offset``, or
      last offset above ``greatest_offset`` → BAD_OFFSET. Of a compressed legacy wrapper the offset is that of its last
      message.
   c. base offset at or above ``to_offset_exclusive``, and that of a batch before it too: the decode ends here, and
      nothing behind it is looked at. Not the first one: no checksum covers an offset, and the next batch tells whether
      it is right. Not compressed legacy wrappers, whose earlier messages may lie below: their messages are filtered
      one by one.
   d. the checksum differs → BAD_CRC (if checksums are verified).
   e. the first batch of c, or last offset below ``from_offset``: the batch is skipped.
   f. magic 2 only, the batch is skipped: a control batch, unless control records are asked for; maxTimestamp below
      ``from_timestamp_ms``; LogAppendTime and maxTimestamp at or above ``to_timestamp_exclusive_ms``; transactional
      data (no control batch) of an aborted transaction.

   As an upper bound of timestamps 2^63 - 1 stands for none: a record may have that very timestamp.

3. The payload, magic 2:

   a. record count < 0 → BAD_COUNT.
   b. uncompressed, and record count above payload bytes / 7 (a record has 7 bytes at least) → BAD_COUNT.
   c. codec 5, 6 or 7 → BAD_CODEC.
   d. an empty payload with record count 0 has no records, whatever its codec (compaction leaves such batches).
   e. decompression → BAD_COMPRESSED, or OVER_LIMIT when the content is larger than ``decompressed_limit``. A stream
      that is both may be called either.

4. Each of the record count's records:

   a. no byte is left → BAD_COUNT.
   b. its length: the varint ends with the payload → TRUNCATED; has more than 5 bytes → BAD_VARINT; is negative or more
      than what is left → BAD_RECORD_LENGTH.
   c. its fields, inside its own bytes and in their order: attributes, timestamp delta, offset delta, key length, key,
      value length, value, header count, and for each header key length, key, value length, value. A field that runs
      into the record's end → BAD_RECORD_LENGTH; a varint of more than 5 bytes (10 of the timestamp delta) → BAD_VARINT;
      a length below -1 (header key: below 0) or more than what is left of the record → BAD_FIELD_LENGTH; header count
      negative or above what is left / 2 → BAD_HEADER_COUNT. Bits of a varint's last byte above 32 (64) are dropped.
   d. bytes are left in the record → BAD_RECORD_LENGTH.
   e. offset delta < 0 or above the last offset delta, or offset not above that of the record before → BAD_OFFSET.
   f. in a control batch: key null, shorter than 4 bytes, or of a negative version → BAD_CONTROL.
   g. the record is filtered by offset and timestamp; what is filtered has been checked so far and no further.
   h. the timestamp does not fit its unit (microseconds) → BAD_TIMESTAMP, if that column is made.

   The timestamp is baseTimestamp + delta, wrapping at 64 bits as in Java, or maxTimestamp with LogAppendTime.
   Behind the last record, bytes are left → TRAILING_BYTES (record -1). Records before a fault are given out.

5. Magic 0 and 1:

   a. uncompressed: key length and key, value length and value: the field's four length bytes are not there →
      BAD_RECORD_LENGTH; a length below -1 or more than what is left → BAD_FIELD_LENGTH; bytes are left behind the
      value → BAD_RECORD_LENGTH. Then 4g and 4h. The record is 0.
   b. a wrapper: codec above 3 → BAD_CODEC; the fields as in a, with record -1; value null → BAD_LEGACY;
      decompression as in 3e.
   c. all of its messages are surveyed before the first is given: entry as in 1 (an entry that runs past the end is
      TRUNCATED), checksum (if verified) → BAD_CRC, magic other than the wrapper's → BAD_LEGACY, a codec → BAD_LEGACY.
      Record is the index of the message.
   d. no message → BAD_LEGACY. Magic 1, wrapper offset not 0: last inner offset negative or above the wrapper's →
      BAD_LEGACY. Record is -1.
   e. each message: its fields as in a; its absolute offset not above the one before, or above 2^63 - 2 → BAD_OFFSET;
      then 4g and 4h.

Header keys are decoded as Java's ``new String(bytes, UTF_8)`` does: each maximal malformed part becomes one U+FFFD. A
UTF-16 surrogate written as three bytes is one malformed part there (three in Python); JDK 17 decides.
"""

from tests.support.oracle.batches import BatchHeader, BatchScan, iter_batches, parse_header, scan, verify
from tests.support.oracle.codecs import decompress
from tests.support.oracle.records import Aborted, DecodeOptions, Record, decode, decode_java_utf8, iter_records

__all__ = [
    "Aborted",
    "BatchHeader",
    "BatchScan",
    "DecodeOptions",
    "Record",
    "decode",
    "decode_java_utf8",
    "decompress",
    "iter_batches",
    "iter_records",
    "parse_header",
    "scan",
    "verify",
]
