#define _POSIX_C_SOURCE 200809L
/* The native methods of io.tierlog.engine.Native: numbers in, numbers out. What they do is in the files beside.
 *
 * Handles are addresses of what an open function here made; the Java side closes each once and uses none behind that.
 * No method keeps a reference to a Java object. */
#include "headers.h"
#include "local_file.h"
#include "report.h"
#include "tierlog/tierlog.h"

#include <errno.h>
#include <jni.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define METHOD(type, name) JNIEXPORT type JNICALL Java_io_tierlog_engine_Native_##name

/* A decoder with what its range borrows. */
typedef struct reader {
    tlj_decoder decoder;
    tlj_report report;
    tlj_block aborted;
    tlj_walk walk; /* of one that looks at headers */
} reader;

static void *pointer(jlong address) { return (void *)(intptr_t)address; }

static jlong address_of(const void *data) { return (jlong)(intptr_t)data; }

/* ---- memory --------------------------------------------------------------------------------------------------------
 */

METHOD(jlong, budgetOpen)(JNIEnv *env, jclass type, jlong limit) {
    (void)env, (void)type;
    tlj_budget *budget = calloc(1, sizeof *budget);
    if (budget) budget->limit = limit;
    return address_of(budget);
}

METHOD(void, budgetClose)(JNIEnv *env, jclass type, jlong budget) {
    (void)env, (void)type;
    free(pointer(budget));
}

METHOD(jlong, budgetLive)(JNIEnv *env, jclass type, jlong budget) {
    (void)env, (void)type;
    return atomic_load(&((tlj_budget *)pointer(budget))->live);
}

METHOD(jlong, budgetHigh)(JNIEnv *env, jclass type, jlong budget) {
    (void)env, (void)type;
    return atomic_load(&((tlj_budget *)pointer(budget))->high);
}

METHOD(jlong, budgetRefused)(JNIEnv *env, jclass type, jlong budget) {
    (void)env, (void)type;
    return atomic_load(&((tlj_budget *)pointer(budget))->refused);
}

METHOD(jlong, liveBytes)(JNIEnv *env, jclass type) {
    (void)env, (void)type;
    return tlj_live_bytes();
}

METHOD(jlong, highBytes)(JNIEnv *env, jclass type) {
    (void)env, (void)type;
    return tlj_high_bytes();
}

/* An address, or a negative status. */
METHOD(jlong, allocate)(JNIEnv *env, jclass type, jlong budget, jlong size) {
    (void)env, (void)type;
    tlj_block block = {0};
    tl_status status = size < 0 ? TL_BAD_ARGUMENT : tlj_reserve(pointer(budget), &block, (size_t)size, 0);
    return status == TL_OK ? address_of(block.data) : -(jlong)status;
}

METHOD(void, release)(JNIEnv *env, jclass type, jlong budget, jlong address, jlong size) {
    (void)env, (void)type;
    tlj_block block = {pointer(address), size ? (size_t)size : 1};
    tlj_release(pointer(budget), &block);
}

METHOD(jobject, view)(JNIEnv *env, jclass type, jlong address, jlong size) {
    (void)type;
    return (*env)->NewDirectByteBuffer(env, pointer(address), size);
}

/* ---- files ---------------------------------------------------------------------------------------------------------
 */

/* A descriptor or a negative number: -errno, or TL_NOT_REGULAR. `path` ends with a 0. */
METHOD(jint, fileOpen)(JNIEnv *env, jclass type, jbyteArray path) {
    (void)type;
    jbyte *bytes = (*env)->GetByteArrayElements(env, path, NULL);
    if (!bytes) return -ENOMEM;
    int file = tlj_file_open((const char *)bytes);
    (*env)->ReleaseByteArrayElements(env, path, bytes, JNI_ABORT);
    return file;
}

METHOD(jlong, fileRead)(JNIEnv *env, jclass type, jint file, jlong position, jlong address, jlong size) {
    (void)env, (void)type;
    return tlj_file_read(file, position, pointer(address), size);
}

METHOD(void, fileExpect)(JNIEnv *env, jclass type, jint file, jlong position, jlong size) {
    (void)env, (void)type;
    tlj_file_expect(file, position, size);
}

METHOD(void, fileClose)(JNIEnv *env, jclass type, jint file) {
    (void)env, (void)type;
    tlj_file_close(file);
}

METHOD(jlong, openFiles)(JNIEnv *env, jclass type) {
    (void)env, (void)type;
    return tlj_file_count();
}

METHOD(jstring, errorText)(JNIEnv *env, jclass type, jint number) {
    (void)type;
    char text[256] = "";
    if (strerror_r(number, text, sizeof text)) snprintf(text, sizeof text, "error %d", (int)number);
    return (*env)->NewStringUTF(env, text);
}

METHOD(jstring, statusName)(JNIEnv *env, jclass type, jint status) {
    (void)type;
    return (*env)->NewStringUTF(env, tl_status_name((tl_status)status));
}

METHOD(jstring, statusText)(JNIEnv *env, jclass type, jint status) {
    (void)type;
    return (*env)->NewStringUTF(env, tl_status_text((tl_status)status));
}

/* ---- chunks --------------------------------------------------------------------------------------------------------
 */

/* 0: no memory. One thread at a time. */
METHOD(jlong, codecsOpen)(JNIEnv *env, jclass type) {
    (void)env, (void)type;
    tl_codecs *codecs = NULL;
    tl_codecs_create(&codecs);
    return address_of(codecs);
}

METHOD(void, codecsClose)(JNIEnv *env, jclass type, jlong codecs) {
    (void)env, (void)type;
    tl_codecs_destroy(pointer(codecs));
}

/* A zstd stream into `out`, not past its capacity. `answer` gets the size; for a status that is not TL_OK: the fault's
 * expected and found. */
METHOD(jint, unzstd)
(JNIEnv *env, jclass type, jlong codecs, jlong data, jlong size, jlong out, jlong capacity, jlongArray answer) {
    (void)type;
    tl_fault fault = {.record = -1};
    size_t written = 0;
    tl_status status = tl_decompress(pointer(codecs), TL_CODEC_ZSTD, 2, pointer(data), (size_t)size, pointer(out),
                                     (size_t)capacity, (size_t)capacity, &written, &fault);
    jlong told[3] = {(jlong)written, fault.expected, fault.found};
    (*env)->SetLongArrayRegion(env, answer, 0, 3, told);
    return status;
}

/* ---- decoder -------------------------------------------------------------------------------------------------------
 */

/* 0: no memory. `summary`: `want` is TL_SUMMARY_*, and `target_bytes` means nothing. */
METHOD(jlong, decoderOpen)
(JNIEnv *env, jclass type, jlong budget, jboolean summary, jint want, jlong target_bytes) {
    (void)env, (void)type;
    reader *opened = calloc(1, sizeof *opened);
    if (!opened) return 0;
    tl_status status = summary ? tlj_decoder_open_summary(&opened->decoder, pointer(budget), (uint32_t)want)
                               : tlj_decoder_open(&opened->decoder, pointer(budget), (uint32_t)want, target_bytes);
    if (status == TL_OK) return address_of(opened);
    tlj_decoder_close(&opened->decoder);
    free(opened);
    return 0;
}

METHOD(void, decoderClose)(JNIEnv *env, jclass type, jlong handle) {
    (void)env, (void)type;
    reader *r = pointer(handle);
    tlj_release(r->decoder.buffers.budget, &r->aborted);
    tlj_decoder_close(&r->decoder);
    free(r);
}

METHOD(jlong, decoderReport)(JNIEnv *env, jclass type, jlong handle) {
    (void)env, (void)type;
    return address_of(&((reader *)pointer(handle))->report);
}

/* `aborted`: rows of tl_aborted, null for read_uncommitted. TL_OK, or a status of tlj_reserve. */
METHOD(jint, decoderBegin)
(JNIEnv *env, jclass type, jlong handle, jlong base_position, jlong end_position, jlong from_offset,
 jlong to_offset_exclusive, jlong least_offset, jlong greatest_offset, jlong from_timestamp_ms,
 jlong to_timestamp_exclusive_ms, jbyteArray aborted, jlong decompressed_limit, jboolean verify_crc) {
    (void)type;
    reader *r = pointer(handle);
    tlj_range range = {.base_position = (uint64_t)base_position,
                       .end_position = (uint64_t)end_position,
                       .from_offset = from_offset,
                       .to_offset_exclusive = to_offset_exclusive,
                       .least_offset = least_offset,
                       .greatest_offset = greatest_offset,
                       .from_timestamp = from_timestamp_ms,
                       .to_timestamp_exclusive = to_timestamp_exclusive_ms,
                       .decompressed_limit = (uint64_t)decompressed_limit,
                       .verify_crc = verify_crc};
    if (aborted) {
        jsize size = (*env)->GetArrayLength(env, aborted);
        tl_status status = tlj_reserve(r->decoder.buffers.budget, &r->aborted, (size_t)size, 0);
        if (status != TL_OK) return status;
        (*env)->GetByteArrayRegion(env, aborted, 0, size, (jbyte *)r->aborted.data);
        range.aborted = (const tl_aborted *)(const void *)r->aborted.data;
        range.aborted_count = (size_t)size / sizeof(tl_aborted);
    }
    tlj_decoder_begin(&r->decoder, &range);
    return TL_OK;
}

METHOD(void, decoderFeed)(JNIEnv *env, jclass type, jlong handle, jlong address, jlong size) {
    (void)env, (void)type;
    tlj_decoder_feed(&((reader *)pointer(handle))->decoder, pointer(address), (size_t)size);
}

METHOD(jint, decoderNext)(JNIEnv *env, jclass type, jlong handle) {
    (void)env, (void)type;
    reader *r = pointer(handle);
    tl_status status;
    tlj_step step = tlj_decoder_next(&r->decoder, &status);
    tlj_report_fill(&r->report, &r->decoder, step, status);
    return step;
}

METHOD(jint, decoderFinish)(JNIEnv *env, jclass type, jlong handle, jboolean allow_partial) {
    (void)env, (void)type;
    reader *r = pointer(handle);
    tl_status status;
    tlj_step step = tlj_decoder_finish(&r->decoder, allow_partial, &status);
    tlj_report_fill(&r->report, &r->decoder, step, status);
    return step;
}

/* Bytes of the batch that was stepped over; -1: where it ends cannot be told. */
METHOD(jint, decoderSkip)(JNIEnv *env, jclass type, jlong handle) {
    (void)env, (void)type;
    int32_t size_bytes;
    return tlj_decoder_skip(&((reader *)pointer(handle))->decoder, &size_bytes) == TL_OK ? size_bytes : -1;
}

/* ---- headers -------------------------------------------------------------------------------------------------------
 */

/* In the range that the decoder has begun. */
METHOD(void, headersBegin)
(JNIEnv *env, jclass type, jlong handle, jint file, jlong log_position, jlong end_position, jlong read_end,
 jlong worth_bytes, jboolean checked, jlong greatest_timestamp_ms) {
    (void)env, (void)type;
    reader *r = pointer(handle);
    r->walk = (tlj_walk){.file = file,
                         .checked = checked,
                         .log_position = log_position,
                         .end_position = end_position,
                         .read_end = read_end,
                         .worth_bytes = worth_bytes,
                         .trust = {.greatest_timestamp = greatest_timestamp_ms}};
}

/* A status, of tlj_walk_headers. `answer`: needed from, needed to, whether it ended, requests, bytes. */
METHOD(jint, headersNext)(JNIEnv *env, jclass type, jlong handle, jlongArray answer) {
    (void)type;
    reader *r = pointer(handle);
    tlj_walk *walk = &r->walk;
    tl_status status = tlj_walk_headers(&r->decoder, walk);
    jlong told[5] = {walk->needed_from, walk->needed_to, walk->ended, walk->requests, walk->bytes};
    (*env)->SetLongArrayRegion(env, answer, 0, 5, told);
    tlj_report_fill(&r->report, &r->decoder, TLJ_INPUT, status);
    return status;
}
