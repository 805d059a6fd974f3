/* Two hundred small tables, so that growing one delays no caller. */
#include "tierlog/metadata_partitions.h"

#include <stdlib.h>
#include <string.h>

enum { SHARDS = 256, SLOTS_MIN = 8 };

/* Open addressing; a slot without a topic is free. */
typedef struct shard {
    tl_metadata_partition *slots;
    size_t capacity, used;
} shard;

struct tl_metadata_partitions {
    shard shards[SHARDS];
    uint64_t seed, count, added;
};

static uint64_t mixed(uint64_t x) {
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
    return x ^ x >> 32;
}

static uint64_t hash_of(const tl_metadata_partitions *partitions, const tl_partition_id *id) {
    uint64_t topic[2];
    memcpy(topic, id->topic_id, 16);
    return mixed(mixed(mixed(topic[0] ^ partitions->seed) + topic[1]) + (uint32_t)id->partition);
}

static bool is_same(const tl_partition_id *a, const tl_partition_id *b) {
    return a->partition == b->partition && memcmp(a->topic_id, b->topic_id, 16) == 0;
}

tl_status tl_metadata_partitions_create(tl_metadata_partitions **out, uint64_t hash_seed) {
    tl_metadata_partitions *partitions = calloc(1, sizeof *partitions);
    if (!partitions) return TL_NO_MEMORY;
    partitions->seed = hash_seed;
    *out = partitions;
    return TL_OK;
}

static void let_go(tl_metadata_topic *topic) {
    if (--topic->users == 0) free(topic);
}

void tl_metadata_partitions_destroy(tl_metadata_partitions *partitions) {
    if (!partitions) return;
    for (size_t i = 0; i < SHARDS; i++) {
        shard *s = &partitions->shards[i];
        for (size_t at = 0; at < s->capacity; at++)
            if (s->slots[at].topic) let_go(s->slots[at].topic);
        free(s->slots);
    }
    free(partitions);
}

static size_t slot_of(const shard *s, uint64_t hash) { return (size_t)(hash >> 8) & (s->capacity - 1); }

/* Its slot, or the free slot for it. The shard has a free slot. */
static size_t look(const shard *s, const tl_partition_id *id, uint64_t hash) {
    size_t at = slot_of(s, hash);
    while (s->slots[at].topic && !is_same(&s->slots[at].id, id)) at = (at + 1) & (s->capacity - 1);
    return at;
}

static tl_metadata_partition *find(const tl_metadata_partitions *partitions, const tl_partition_id *id, uint64_t hash) {
    const shard *s = &partitions->shards[hash % SHARDS];
    if (!s->used) return NULL;
    tl_metadata_partition *found = &s->slots[look(s, id, hash)];
    return found->topic ? found : NULL;
}

tl_metadata_partition *tl_metadata_partitions_find(const tl_metadata_partitions *partitions,
                                                   const tl_partition_id *id) {
    return id->partition < 0 ? NULL : find(partitions, id, hash_of(partitions, id));
}

/* Room for one more; three quarters full is full. */
static tl_status make_room(tl_metadata_partitions *partitions, shard *s) {
    if ((s->used + 1) * 4 <= s->capacity * 3) return TL_OK;
    shard wider = {.capacity = s->capacity ? s->capacity * 2 : SLOTS_MIN, .used = s->used};
    wider.slots = calloc(wider.capacity, sizeof *wider.slots);
    if (!wider.slots) return TL_NO_MEMORY;
    for (size_t i = 0; i < s->capacity; i++) {
        const tl_metadata_partition *entry = &s->slots[i];
        if (entry->topic) wider.slots[look(&wider, &entry->id, hash_of(partitions, &entry->id))] = *entry;
    }
    free(s->slots);
    *s = wider;
    return TL_OK;
}

static tl_status insert(tl_metadata_partitions *partitions, const tl_metadata_partition *entry) {
    uint64_t hash = hash_of(partitions, &entry->id);
    shard *s = &partitions->shards[hash % SHARDS];
    tl_status status = make_room(partitions, s);
    if (status != TL_OK) return status;
    s->slots[look(s, &entry->id, hash)] = *entry;
    s->used++;
    return TL_OK;
}

/* The slots behind a freed one move up, so that none is cut off from where it is looked for. */
static void take_out(tl_metadata_partitions *partitions, const tl_partition_id *id) {
    uint64_t hash = hash_of(partitions, id);
    shard *s = &partitions->shards[hash % SHARDS];
    size_t mask = s->capacity - 1, hole = look(s, id, hash);
    for (size_t at = (hole + 1) & mask; s->slots[at].topic; at = (at + 1) & mask) {
        size_t wanted = slot_of(s, hash_of(partitions, &s->slots[at].id));
        if (((at - wanted) & mask) < ((at - hole) & mask)) continue;
        s->slots[hole] = s->slots[at];
        hole = at;
    }
    s->slots[hole].topic = NULL;
    s->used--;
}

/* A topic stands in the tables as its partition -1. */
static tl_partition_id topic_key(const tl_partition_id *id) {
    tl_partition_id key = *id;
    key.partition = -1;
    return key;
}

static void leave_topic(tl_metadata_partitions *partitions, const tl_partition_id *id, tl_metadata_topic *topic) {
    tl_partition_id key = topic_key(id);
    if (topic->users == 2) { /* the last of its partitions, and its own entry */
        take_out(partitions, &key);
        topic->users = 1;
    }
    let_go(topic);
}

static tl_status join_topic(tl_metadata_partitions *partitions, const tl_partition_id *id, const char *name,
                            size_t name_size, tl_metadata_topic **out) {
    tl_partition_id key = topic_key(id);
    const tl_metadata_partition *found = find(partitions, &key, hash_of(partitions, &key));
    if (found) {
        *out = found->topic;
        if (found->topic->name_size != name_size || memcmp(found->topic->name, name, name_size) != 0)
            return TL_BAD_ENTRY;
        found->topic->users++;
        return TL_OK;
    }
    tl_metadata_topic *topic = malloc(sizeof *topic + name_size);
    if (!topic) return TL_NO_MEMORY;
    topic->users = 2;
    topic->name_size = name_size;
    memcpy(topic->name, name, name_size);
    tl_status status = insert(partitions, &(tl_metadata_partition){.id = key, .applied = -1, .topic = topic});
    if (status == TL_OK) {
        *out = topic;
    } else {
        free(topic);
    }
    return status;
}

tl_status tl_metadata_partitions_add(tl_metadata_partitions *partitions, const tl_partition_id *id, const char *name,
                                     size_t name_size, int32_t place, int64_t applied) {
    if (id->partition < 0) return TL_BAD_ARGUMENT;
    const tl_metadata_partition *there = tl_metadata_partitions_find(partitions, id);
    if (there) {
        const tl_metadata_topic *topic = there->topic;
        bool same = topic->name_size == name_size && memcmp(topic->name, name, name_size) == 0;
        return same ? TL_OK : TL_BAD_ENTRY;
    }
    tl_metadata_partition entry = {.id = *id, .place = place, .applied = applied};
    tl_status status = join_topic(partitions, id, name, name_size, &entry.topic);
    if (status != TL_OK) return status;
    status = insert(partitions, &entry);
    if (status != TL_OK) {
        leave_topic(partitions, id, entry.topic);
        return status;
    }
    partitions->count++;
    partitions->added++;
    return TL_OK;
}

bool tl_metadata_partitions_remove(tl_metadata_partitions *partitions, const tl_partition_id *id) {
    const tl_metadata_partition *there = tl_metadata_partitions_find(partitions, id);
    if (!there) return false;
    tl_metadata_topic *topic = there->topic;
    take_out(partitions, id);
    leave_topic(partitions, id, topic);
    partitions->count--;
    return true;
}

size_t tl_metadata_partitions_list(const tl_metadata_partitions *partitions, uint64_t *at, tl_metadata_partition *out,
                                   size_t capacity) {
    size_t count = 0;
    uint64_t shard_at = *at >> 32, slot = *at & UINT32_MAX;
    for (; shard_at < SHARDS; shard_at++, slot = 0) {
        const shard *s = &partitions->shards[shard_at];
        for (; slot < s->capacity; slot++) {
            if (!s->slots[slot].topic || s->slots[slot].id.partition < 0) continue;
            if (count == capacity) {
                *at = shard_at << 32 | slot;
                return count;
            }
            out[count++] = s->slots[slot];
        }
    }
    *at = shard_at << 32;
    return count;
}

uint64_t tl_metadata_partitions_count(const tl_metadata_partitions *partitions) { return partitions->count; }
uint64_t tl_metadata_partitions_added(const tl_metadata_partitions *partitions) { return partitions->added; }
