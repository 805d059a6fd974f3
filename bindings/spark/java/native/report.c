#include "report.h"

static int64_t address(const void *data) { return (int64_t)(intptr_t)data; }

static int64_t validity(const tl_binary *column) { return column->null_count ? address(column->validity) : 0; }

static void fill_columns(tlj_report *report, const tl_columns *c) {
    report->rows = c->rows;
    report->key_offsets = address(c->key.offsets);
    report->key_data = address(c->key.data);
    report->key_validity = validity(&c->key);
    report->key_nulls = c->key.null_count;
    report->value_offsets = address(c->value.offsets);
    report->value_data = address(c->value.data);
    report->value_validity = validity(&c->value);
    report->value_nulls = c->value.null_count;
    report->offset = address(c->offset);
    report->timestamp = address(c->timestamp);
    report->timestamp_type = address(c->timestamp_type);
    report->leader_epoch = address(c->leader_epoch);
    report->header_offsets = address(c->header_offsets);
    report->header_validity = c->header_null_count ? address(c->header_validity) : 0;
    report->header_nulls = c->header_null_count;
    report->header_count = c->header_count;
    report->header_key_offsets = address(c->header_key.offsets);
    report->header_key_data = address(c->header_key.data);
    report->header_value_offsets = address(c->header_value.offsets);
    report->header_value_data = address(c->header_value.data);
    report->header_value_validity = validity(&c->header_value);
    report->header_value_nulls = c->header_value.null_count;
}

void tlj_report_fill(tlj_report *report, const tlj_decoder *decoder, tlj_step step, tl_status status) {
    *report = (tlj_report){0};
    if (step == TLJ_ROWS) fill_columns(report, &decoder->buffers.columns);
    report->status = status;
    if (status != TL_OK) {
        report->fault_position = (int64_t)decoder->fault.position;
        report->fault_base_offset = decoder->fault.base_offset;
        report->fault_record = decoder->fault.record;
        report->fault_expected = decoder->fault.expected;
        report->fault_found = decoder->fault.found;
    }
    report->position = (int64_t)tlj_decoder_position(decoder);
    report->batches = (int64_t)(decoder->batches + decoder->state.batches);
    report->batches_skipped = (int64_t)(decoder->batches_skipped + decoder->state.batches_skipped);
    report->records = (int64_t)(decoder->records + decoder->state.records);
    report->decompressed_bytes = (int64_t)(decoder->decompressed_bytes + decoder->state.decompressed_bytes);
    report->crc_ns = (int64_t)(decoder->crc_ns + decoder->state.crc_ns);
    report->summary_records = decoder->summary.records;
    report->least_offset = decoder->summary.least_offset;
    report->greatest_offset = decoder->summary.greatest_offset;
    report->least_timestamp = decoder->summary.least_timestamp;
    report->greatest_timestamp = decoder->summary.greatest_timestamp;
}
