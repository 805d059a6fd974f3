#include "tierlog/cleaned_transactions.h"

#include "tierlog/log_append.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 16 };

/* A producer that has an open transaction. */
typedef struct producer {
    tl_aborted_entry aborted; /* of its transaction here, if that was aborted */
    bool is_used;             /* the slot is */
    bool is_committed;        /* a batch of a committed transaction was met */
    bool is_aborted;          /* an aborted transaction is open, */
    bool has_batch;           /* and a batch of it was met */
} producer;

struct tl_cleaned_transactions {
    uint64_t secret_low, secret_high;
    tl_aborted_entry *waiting; /* a heap by first offset: their transactions begin behind the last batch */
    size_t waiting_count, waiting_capacity;
    producer *slots; /* open addressing; no more than half are in use */
    size_t slot_count, used;
    tl_aborted_entry *retained;
    size_t retained_count, retained_capacity;
    const tl_last_record *last;
    size_t last_count;
};

/* The number that the capacity doubles to; 0: it cannot be. */
static size_t doubled(size_t capacity, size_t entry_size) {
    size_t more = capacity ? 2 * capacity : FIRST_CAPACITY;
    return more <= SIZE_MAX / 2 / entry_size ? more : 0;
}

static tl_status grow(tl_aborted_entry **entries, size_t count, size_t *capacity) {
    if (count < *capacity) return TL_OK;
    size_t more = doubled(*capacity, sizeof **entries);
    tl_aborted_entry *grown = more ? realloc(*entries, more * sizeof **entries) : NULL;
    if (!grown) return TL_NO_MEMORY;
    *entries = grown;
    *capacity = more;
    return TL_OK;
}

/* ---- aborted transactions to come, as a heap
 */

tl_status tl_cleaned_transactions_add(tl_cleaned_transactions *t, const tl_aborted_entry *entry) {
    tl_status status = grow(&t->waiting, t->waiting_count, &t->waiting_capacity);
    if (status != TL_OK) return status;
    size_t at = t->waiting_count++;
    for (; at && t->waiting[(at - 1) / 2].first_offset > entry->first_offset; at = (at - 1) / 2)
        t->waiting[at] = t->waiting[(at - 1) / 2];
    t->waiting[at] = *entry;
    return TL_OK;
}

static tl_aborted_entry pop(tl_cleaned_transactions *t) {
    tl_aborted_entry first = t->waiting[0], last = t->waiting[--t->waiting_count];
    size_t at = 0, child;
    while ((child = 2 * at + 1) < t->waiting_count) {
        if (child + 1 < t->waiting_count && t->waiting[child + 1].first_offset < t->waiting[child].first_offset)
            child++;
        if (t->waiting[child].first_offset >= last.first_offset) break;
        t->waiting[at] = t->waiting[child];
        at = child;
    }
    t->waiting[at] = last;
    return first;
}

/* ---- producers by id
 */

static size_t home_of(const tl_cleaned_transactions *t, int64_t producer_id) {
    tl_key_hash hash = tl_siphash128(t->secret_low, t->secret_high, (const uint8_t *)&producer_id, sizeof producer_id);
    return (size_t)hash.low & (t->slot_count - 1);
}

/* The slot of a producer, or the empty one where it belongs. */
static size_t slot_of(const tl_cleaned_transactions *t, int64_t producer_id) {
    size_t at = home_of(t, producer_id);
    while (t->slots[at].is_used && t->slots[at].aborted.producer_id != producer_id) at = (at + 1) & (t->slot_count - 1);
    return at;
}

static producer *find(const tl_cleaned_transactions *t, int64_t producer_id) {
    if (!t->used) return NULL;
    producer *found = t->slots + slot_of(t, producer_id);
    return found->is_used ? found : NULL;
}

static tl_status widen(tl_cleaned_transactions *t) {
    tl_cleaned_transactions wide = *t;
    wide.slot_count = doubled(t->slot_count, sizeof *t->slots);
    wide.slots = wide.slot_count ? calloc(wide.slot_count, sizeof *t->slots) : NULL;
    if (!wide.slots) return TL_NO_MEMORY;
    for (size_t at = 0; at < t->slot_count; at++)
        if (t->slots[at].is_used) wide.slots[slot_of(&wide, t->slots[at].aborted.producer_id)] = t->slots[at];
    free(t->slots);
    *t = wide;
    return TL_OK;
}

static tl_status find_or_make(tl_cleaned_transactions *t, int64_t producer_id, producer **out) {
    *out = find(t, producer_id);
    if (*out) return TL_OK;
    if (2 * (t->used + 1) > t->slot_count && widen(t) != TL_OK) return TL_NO_MEMORY;
    *out = t->slots + slot_of(t, producer_id);
    **out = (producer){.aborted = {.producer_id = producer_id}, .is_used = true};
    t->used++;
    return TL_OK;
}

/* Removes a producer of whose transactions nothing is open; those that were pushed behind it move up. */
static void remove_if_idle(tl_cleaned_transactions *t, producer *idle) {
    if (idle->is_committed || idle->is_aborted) return;
    size_t mask = t->slot_count - 1, hole = (size_t)(idle - t->slots);
    for (size_t at = (hole + 1) & mask; t->slots[at].is_used; at = (at + 1) & mask) {
        size_t home = home_of(t, t->slots[at].aborted.producer_id);
        if (((at - home) & mask) < ((at - hole) & mask)) continue; /* its home lies behind the hole */
        t->slots[hole] = t->slots[at];
        hole = at;
    }
    t->slots[hole] = (producer){.is_used = false};
    t->used--;
}

/* ---- the walk
 */

static tl_status begin_up_to(tl_cleaned_transactions *t, int64_t offset) {
    while (t->waiting_count && t->waiting[0].first_offset <= offset) {
        tl_aborted_entry entry = pop(t);
        producer *of;
        if (find_or_make(t, entry.producer_id, &of) != TL_OK) return TL_NO_MEMORY;
        if (of->is_aborted) continue; /* it was added before */
        of->aborted = entry;
        of->is_aborted = true;
        of->has_batch = false;
    }
    return TL_OK;
}

/* Takes a transactional batch; whether it was aborted. */
static tl_status meet_batch(tl_cleaned_transactions *t, int64_t producer_id, bool *can_go) {
    producer *of;
    if (find_or_make(t, producer_id, &of) != TL_OK) return TL_NO_MEMORY;
    *can_go = of->is_aborted;
    if (of->is_aborted)
        of->has_batch = true;
    else
        of->is_committed = true;
    return TL_OK;
}

/* Takes the end of a transaction; whether no batch of it was met. */
static tl_status meet_marker(tl_cleaned_transactions *t, int64_t producer_id, bool is_commit, bool *can_go) {
    producer *of = find(t, producer_id);
    *can_go = true;
    if (!of) return TL_OK;
    if (is_commit) {
        *can_go = !of->is_committed;
        of->is_committed = false;
    } else {
        *can_go = !(of->is_aborted && of->has_batch);
        if (!*can_go) {
            if (grow(&t->retained, t->retained_count, &t->retained_capacity) != TL_OK) return TL_NO_MEMORY;
            t->retained[t->retained_count++] = of->aborted;
        }
        of->is_aborted = of->has_batch = false;
    }
    remove_if_idle(t, of);
    return TL_OK;
}

/* Whether a batch has the last sequence of its producer, or, if that has no data, its epoch. */
static bool is_last(const tl_cleaned_transactions *t, const tl_batch_header *header, int64_t last_offset) {
    size_t from = 0, to = t->last_count;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (t->last[middle].producer_id < header->producer_id)
            from = middle + 1;
        else
            to = middle;
    }
    if (from == t->last_count || t->last[from].producer_id != header->producer_id) return false;
    if (t->last[from].last_data_offset >= 0) return last_offset == t->last[from].last_data_offset;
    return header->attributes & TL_ATTRIBUTE_CONTROL && header->producer_epoch == t->last[from].producer_epoch;
}

static int64_t last_offset_of(const tl_batch_header *header) {
    return (int64_t)((uint64_t)header->base_offset + (uint64_t)(int64_t)header->last_offset_delta);
}

/* Takes a transactional or a control batch; whether it may go: an aborted one, or a marker of a transaction without
 * batches. */
static tl_status take(tl_cleaned_transactions *t, const uint8_t *data, const tl_batch_header *header, bool *can_go,
                      tl_fault *fault) {
    tl_status status = begin_up_to(t, last_offset_of(header));
    if (status != TL_OK) return status;
    if (!(header->attributes & TL_ATTRIBUTE_CONTROL)) return meet_batch(t, header->producer_id, can_go);
    *can_go = header->record_count == 0; /* it was emptied by a cleaning before this one */
    if (*can_go) return TL_OK;
    tl_marker marker;
    bool is_marker = false;
    status = tl_marker_parse(data, header, &marker, &is_marker, fault);
    if (status != TL_OK || !is_marker) return status;
    return meet_marker(t, header->producer_id, marker.is_commit, can_go);
}

static uint8_t verdict_of(const tl_batch_header *header, int64_t now_ms, bool is_for_map) {
    if (is_for_map || !(header->attributes & TL_ATTRIBUTE_CONTROL)) return TL_VERDICT_DISCARD;
    bool is_due = header->attributes & TL_ATTRIBUTE_DELETE_HORIZON && header->base_timestamp <= now_ms;
    return TL_VERDICT_EMPTY_TRANSACTION | (is_due ? TL_VERDICT_DISCARD : 0);
}

tl_status tl_cleaned_transactions_judge(tl_cleaned_transactions *t, const uint8_t *data, size_t size,
                                        size_t batches_max, int64_t now_ms, bool is_for_map, uint8_t *verdicts,
                                        tl_fault *fault) {
    for (size_t at = 0; at < size; verdicts++) {
        if (!batches_max--)
            return *fault = (tl_fault){.position = at, .base_offset = -1, .record = -1}, TL_BAD_ARGUMENT;
        tl_batch_header header;
        bool can_go = false;
        *verdicts = 0;
        tl_status status = tl_batch_parse(data + at, size - at, &header, fault);
        bool is_judged = header.magic == 2 && header.attributes & (TL_ATTRIBUTE_TRANSACTIONAL | TL_ATTRIBUTE_CONTROL);
        if (status == TL_OK && is_judged) status = take(t, data + at, &header, &can_go, fault);
        if (status != TL_OK) {
            fault->position = at;
            return status;
        }
        if (can_go) *verdicts = verdict_of(&header, now_ms, is_for_map);
        if (!is_for_map && header.producer_id >= 0 && is_last(t, &header, last_offset_of(&header)))
            *verdicts |= TL_VERDICT_RETAIN_EMPTY;
        at += (size_t)header.size_bytes;
    }
    return TL_OK;
}

void tl_cleaned_transactions_set_last(tl_cleaned_transactions *t, const tl_last_record *last, size_t count) {
    t->last = last;
    t->last_count = count;
}

const tl_aborted_entry *tl_cleaned_transactions_retained(const tl_cleaned_transactions *t, size_t *count) {
    *count = t->retained_count;
    return t->retained;
}

void tl_cleaned_transactions_forget(tl_cleaned_transactions *t) { t->retained_count = 0; }

tl_status tl_cleaned_transactions_create(tl_cleaned_transactions **out, uint64_t secret_low, uint64_t secret_high) {
    tl_cleaned_transactions *made = calloc(1, sizeof *made);
    if (!made) return TL_NO_MEMORY;
    made->secret_low = secret_low;
    made->secret_high = secret_high;
    *out = made;
    return TL_OK;
}

void tl_cleaned_transactions_destroy(tl_cleaned_transactions *t) {
    if (!t) return;
    free(t->waiting);
    free(t->slots);
    free(t->retained);
    free(t);
}
