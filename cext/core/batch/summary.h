/* Summaries of the records that count, from batch headers. Internal to the core: tl_decode asks. */
#ifndef TIERLOG_SUMMARY_H
#define TIERLOG_SUMMARY_H

#include "batch/columns.h"

/* Adds a batch if its header says all that is wanted of it; false: its records have to be looked at. For batches of
 * which the header rules nothing out. Exact in the presence of compaction, cuts and both kinds of timestamps. */
bool tl_summary_take(tl_summary *summary, const tl_batch_header *header, const tl_decode_options *options);

/* Adds the rows and empties the columns. */
void tl_summary_fold(tl_summary *summary, tl_columns *columns);

#endif
