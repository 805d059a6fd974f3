/* UTF-8 as Java's decoder gives it: each maximal malformed part becomes one U+FFFD. Header keys only. */
#ifndef TIERLOG_UTF8_H
#define TIERLOG_UTF8_H

#include "tierlog/status.h"

/* Bytes that tl_utf8_replace will write. At most 3 * size. */
int64_t tl_utf8_replaced_size(const uint8_t *data, size_t size);

/* Whether it has no malformed part. */
bool tl_utf8_is_valid(const uint8_t *data, size_t size);

/* Copies `data` to `out`, malformed parts replaced. */
void tl_utf8_replace(const uint8_t *data, size_t size, uint8_t *out);

#endif
