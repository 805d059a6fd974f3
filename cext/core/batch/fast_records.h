/* The fast path for records of magic 2 that are sound. Internal to the core. */
#ifndef TIERLOG_FAST_RECORDS_H
#define TIERLOG_FAST_RECORDS_H

#include "batch/columns.h"

/* Decodes records from state->record_at on, as long as they are sound and every column has room for them and some
 * slack. It stops in front of the first other record, of which nothing counts yet: the careful path (tl_record_parse,
 * tl_columns_append) decides what that one is. So this path reports no faults.
 *
 * `filtered`: some records of the batch may lie outside the asked range. `end`: behind the last byte of the batch's
 * records. */
void tl_decode_sound_records(const uint8_t *content, const uint8_t *end, const tl_batch_header *batch,
                             const tl_decode_options *options, bool filtered, tl_decode_state *state,
                             tl_columns *columns);

#endif
