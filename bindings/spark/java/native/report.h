/* What a step of a decoder left, as numbers at fixed places: the JVM reads them by address.
 * The order is that of io.tierlog.engine.Report. */
#ifndef TLJ_REPORT_H
#define TLJ_REPORT_H

#include "decoder.h"

typedef struct tlj_report {
    int64_t rows;
    /* addresses; of validity bits 0 where nothing is null */
    int64_t key_offsets, key_data, key_validity, key_nulls;
    int64_t value_offsets, value_data, value_validity, value_nulls;
    int64_t offset, timestamp, timestamp_type, leader_epoch;
    int64_t header_offsets, header_validity, header_nulls, header_count;
    int64_t header_key_offsets, header_key_data;
    int64_t header_value_offsets, header_value_data, header_value_validity, header_value_nulls;
    /* of TLJ_FAULT and TLJ_NO_MEMORY */
    int64_t status, fault_position, fault_base_offset, fault_record, fault_expected, fault_found;
    int64_t position; /* tlj_decoder_position */
    int64_t batches, batches_skipped, records, decompressed_bytes, crc_ns;
    /* of the range under way, where the decoder sums up */
    int64_t summary_records, least_offset, greatest_offset, least_timestamp, greatest_timestamp;
} tlj_report;

void tlj_report_fill(tlj_report *report, const tlj_decoder *decoder, tlj_step step, tl_status status);

#endif
