/* Structs of a caller that was compiled before their last fields: nothing behind them is read. */
#include "check.h"
#include "tierlog/tierlog.h"

int main(void) {
    tl_fault fault = {0};
    uint8_t batch[TL_HEADER_SIZE_V2] = {0};
    size_t at = 0;
    tl_batch_table table = {.struct_size = sizeof(tl_batch_table) - 1};
    CHECK_STATUS(tl_scan(batch, sizeof batch, 0, true, &at, &table, &fault), TL_BAD_ARGUMENT);
    CHECK_EQUAL(fault.expected, (int64_t)sizeof(tl_batch_table));
    CHECK_EQUAL(fault.found, (int64_t)sizeof(tl_batch_table) - 1);

    tl_decode_options options = {.struct_size = sizeof(tl_decode_options)};
    tl_decode_state state = {0};
    tl_columns columns = {0};
    CHECK_STATUS(tl_decode(batch, 0, &options, &state, NULL, &columns, &fault), TL_BAD_ARGUMENT);
    CHECK_EQUAL(fault.expected, (int64_t)sizeof(tl_columns));
    columns.struct_size = sizeof columns;
    CHECK_STATUS(tl_decode(batch, 0, &options, &state, NULL, &columns, &fault), TL_OK);
    options.struct_size = 0;
    CHECK_STATUS(tl_decode(batch, 0, &options, &state, NULL, &columns, &fault), TL_BAD_ARGUMENT);

    tl_leader_options leader = {0};
    tl_record_errors errors = {0};
    tl_leader_batch out;
    CHECK_STATUS(tl_leader_append(batch, sizeof batch, &leader, NULL, &errors, &out, &fault), TL_BAD_ARGUMENT);

    tl_segment_table *segments = NULL;
    CHECK_STATUS(tl_segment_table_create(&segments, &(tl_segment_table_options){0}), TL_BAD_ARGUMENT);
    tl_buffer_pool *pool = NULL;
    CHECK_STATUS(tl_buffer_pool_create(&pool, &(tl_buffer_limits){0}), TL_BAD_ARGUMENT);
    CHECK(!segments && !pool);
    return 0;
}
