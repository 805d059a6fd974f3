/* Which headers can be believed of a log whose checksums nobody checks. Internal to the core: tl_decode_header asks. */
#ifndef TIERLOG_TRUST_H
#define TIERLOG_TRUST_H

#include "tierlog/decode.h"

/* What a header says of the batches around it and of itself, before it counts: TL_HEADER_ENOUGH if nothing contradicts,
 * else that its records, or those of the batch before too, have to be looked at. Remembers it for the next one. */
tl_header_verdict tl_trust_header(tl_header_trust *trust, const tl_batch_header *header,
                                  const tl_decode_options *options);

#endif
