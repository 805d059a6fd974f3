/* The headers that can be believed, of a log whose checksums are not checked. Internal to the core: tl_decode_header
 * asks. */
#ifndef TIERLOG_TRUST_H
#define TIERLOG_TRUST_H

#include "tierlog/decode.h"

/* Judges a header by the batches around it and by itself, before it counts: TL_HEADER_ENOUGH if nothing contradicts,
 * else that its records, or those of the batch before too, have to be looked at. Remembers it for the next one. */
tl_header_verdict tl_trust_header(tl_header_trust *trust, const tl_batch_header *header,
                                  const tl_decode_options *options);

#endif
