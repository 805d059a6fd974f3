/* Records of magic 2 that are as they should be, decoded as fast as they can be. Internal to the core. */
#ifndef TIERLOG_SPRINT_H
#define TIERLOG_SPRINT_H

#include "columns.h"

/* Decodes from state->record_at as many records as are sound, with room and slack in every column. Whatever is
 * different stops it before anything of that record counts, and goes the careful way (tl_record_parse,
 * tl_columns_append), which decides what it is; so this path has no faults of its own.
 *
 * `filtered`: some records of the batch may lie outside the asked range. `end`: behind the last byte of the batch's
 * records. */
void tl_sprint(const uint8_t *content, const uint8_t *end, const tl_batch_header *batch,
               const tl_decode_options *options, bool filtered, tl_decode_state *state, tl_columns *columns);

#endif
