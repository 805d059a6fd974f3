/* Which partitions' events are taken, and under which names. A partition that is cut off in its table has no events any
 * more; a name that is none is an error that a Python caller cannot even print. */
#include "check.h"
#include "table/metadata_record.h"
#include "tierlog/metadata_partitions.h"

/* The partitions against an array. */
static void test_partitions(void) {
    enum { MANY = 3000 };
    static struct {
        bool there;
        int name;
    } model[MANY];
    tl_metadata_partitions *partitions;
    uint64_t random = 9, at = 0;
    size_t count = 0, users[MANY / 10][2] = {0};
    CHECK_STATUS(tl_metadata_partitions_create(&partitions, 3), TL_OK);
    for (int step = 0; step < 40000; step++) {
        size_t number = next_random(&random) % MANY, topic = number / 10;
        int name = (int)(next_random(&random) % 2);
        tl_partition_id id = {.partition = (int32_t)(number % 10)};
        memcpy(id.topic_id, &topic, sizeof topic);
        if (next_random(&random) % 3) {
            tl_status status =
                tl_metadata_partitions_add(partitions, &id, name ? "other" : "one", name ? 5 : 3, 0, (int64_t)number);
            CHECK_STATUS(status, users[topic][!name] ? TL_BAD_ENTRY : TL_OK);
            if (status == TL_OK && !model[number].there) {
                model[number].there = true;
                model[number].name = name;
                users[topic][name]++;
                count++;
            }
        } else {
            CHECK_EQUAL(tl_metadata_partitions_remove(partitions, &id), model[number].there);
            if (model[number].there) {
                users[topic][model[number].name]--;
                count--;
            }
            model[number].there = false;
        }
        const tl_metadata_partition *entry = tl_metadata_partitions_find(partitions, &id);
        CHECK_EQUAL(entry != NULL, model[number].there);
        if (entry) CHECK_EQUAL(entry->applied, number);
        CHECK_EQUAL(tl_metadata_partitions_count(partitions), count);
    }
    tl_metadata_partition out[7];
    size_t listed = 0, n;
    while ((n = tl_metadata_partitions_list(partitions, &at, out, 7)) > 0) {
        for (size_t i = 0; i < n; i++) {
            size_t topic;
            memcpy(&topic, out[i].id.topic_id, sizeof topic);
            size_t number = topic * 10 + (size_t)out[i].id.partition;
            CHECK(model[number].there);
            CHECK_EQUAL(out[i].topic->name_size, model[number].name ? 5 : 3);
            model[number].there = false;
        }
        listed += n;
    }
    CHECK_EQUAL(listed, count);
    tl_metadata_partitions_destroy(partitions);
}

static void test_names(void) {
    static const struct {
        const char *name;
        bool is_one;
    } cases[] = {
        {"", false},
        {"a", true},
        {"\xc3\xa4", true},
        {"\xed\x9f\xbf", true},
        {"\xed\xa0\x80", false},
        {"\xc0\x80", false},
        {"\xe0\x9f\xbf", false},
        {"\xf0\x90\x80\x80", true},
        {"\xf4\x8f\xbf\xbf", true},
        {"\xf4\x90\x80\x80", false},
        {"\xf5\x80\x80\x80", false},
        {"a\x80", false},
        {"\xe2\x82", false},
        {"\xff", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_EQUAL(tl_metadata_is_name(cases[i].name, strlen(cases[i].name)), cases[i].is_one);
}

int main(void) {
    test_partitions();
    test_names();
    return 0;
}
