/* Any bytes as a transaction index, and what it gives as aborted ranges. Input: from, to, the file. */
#include "fuzz.h"
#include "tierlog/index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int64_t from = take_number(&data, &size, 8), to = take_number(&data, &size, 8);
    uint8_t *index = exact_copy(data, size);
    size_t entries = size / TL_TXN_ENTRY, count, kept;
    tl_txn_entry *rows = malloc(entries * sizeof *rows + 1);
    tl_aborted *aborted = malloc(entries * sizeof *aborted + 1);
    REQUIRE(rows && aborted);
    tl_fault fault;
    bool complete;
    tl_status status = tl_txn_index_read(index, size, rows, &count, &fault);
    REQUIRE(count <= entries && (status != TL_OK || count == entries));
    status = tl_txn_index_check(index, size, from, &fault);
    REQUIRE(status == TL_OK || fault.position <= size);
    status = tl_txn_index_collect(index, size, from, to, aborted, &count, &complete, &fault);
    REQUIRE(count <= entries);
    if (status == TL_OK && tl_aborted_sort(aborted, count, &kept, &fault) == TL_OK) {
        REQUIRE(kept <= count);
        for (size_t i = 0; i < kept; i++) {
            REQUIRE(tl_is_aborted(aborted, kept, aborted[i].producer_id, aborted[i].first_offset));
            REQUIRE(tl_is_aborted(aborted, kept, aborted[i].producer_id, aborted[i].last_offset));
        }
    }
    free(aborted);
    free(rows);
    free(index);
    return 0;
}
