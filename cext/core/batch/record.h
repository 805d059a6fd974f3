/* Parsing of one record of magic 2, and of one entry of a legacy message set; a row of a batch table. Internal to the
 * core. */
#ifndef TIERLOG_RECORD_H
#define TIERLOG_RECORD_H

#include "batch/columns.h"
#include "cursor.h"
#include "tierlog/batch.h"

/* Appends a row, for which there is room. */
void tl_batch_table_append(tl_batch_table *table, const tl_batch_header *header, int64_t position, bool crc_ok);

enum { TL_RECORD_MINIMUM = 7 }; /* length, attributes, two deltas, two field lengths, header count: a byte each */

/* Parses the record at `at` and checks every field; *next is behind it. Any malformed record ends here with its fault.
 * record->offset and ->timestamp get the deltas, not yet added to the batch's bases.
 *   TL_BAD_COUNT          nothing is left at `at`
 *   TL_TRUNCATED, TL_BAD_VARINT   the length itself
 *   TL_BAD_RECORD_LENGTH  negative, beyond `end`, or not the sum of the fields
 *   TL_BAD_FIELD_LENGTH, TL_BAD_HEADER_COUNT, TL_BAD_VARINT */
tl_status tl_record_parse(const uint8_t *at, const uint8_t *end, tl_record *record, const uint8_t **next,
                          tl_fault *fault);

/* Body of a magic 0/1 message, from `at` (its offset field): key and value into `record`. */
tl_status tl_legacy_parse(const uint8_t *at, const tl_batch_header *header, tl_record *record, tl_fault *fault);

/* Surveys a wrapper's inner set before its first record is given: the number of messages, and the addend of their
 * offsets. Checks sizes, magic and codec of each inner message, and their CRC if asked. */
tl_status tl_legacy_survey(const uint8_t *content, size_t size, const tl_batch_header *wrapper, bool verify_crc,
                           int64_t *count, int64_t *offset_base, tl_fault *fault);

#endif
