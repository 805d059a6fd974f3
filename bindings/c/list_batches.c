/* Prints the record batches of a Kafka log segment: what a program over libtierlog_core looks like.
 *
 *   cc list_batches.c $(pkg-config --cflags --libs tierlog_core) -o list_batches && ./list_batches SEGMENT.log */
#include <tierlog/tierlog.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { BATCHES = 256 };

static uint8_t *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    uint8_t *data = NULL;
    if (file && !fseek(file, 0, SEEK_END)) {
        long end = ftell(file);
        rewind(file);
        data = end < 0 ? NULL : malloc((size_t)end + 1);
        *size = data ? fread(data, 1, (size_t)end, file) : 0;
    }
    if (file) fclose(file);
    return data;
}

int main(int count, char **arguments) {
    size_t size = 0, at = 0;
    uint8_t *data = count == 2 ? read_file(arguments[1], &size) : NULL;
    if (!data) {
        fprintf(stderr, "usage: %s SEGMENT.log\n", arguments[0]);
        return 2;
    }
    int64_t base_offset[BATCHES], last_offset[BATCHES], position[BATCHES];
    int32_t size_bytes[BATCHES];
    uint8_t crc_ok[BATCHES];
    tl_batch_table table = {.struct_size = sizeof(tl_batch_table), .capacity = BATCHES,
                            .base_offset = base_offset,
                            .last_offset = last_offset,
                            .position = position,
                            .size_bytes = size_bytes,
                            .crc_ok = crc_ok};
    tl_fault fault = {0};
    tl_status status;
    do {
        table.count = 0;
        status = tl_scan(data, size, 0, true, &at, &table, &fault);
        for (size_t i = 0; i < table.count; i++)
            printf("@ %" PRId64 ": offsets %" PRId64 "-%" PRId64 ", %" PRId32 " bytes%s\n", position[i], base_offset[i],
                   last_offset[i], size_bytes[i], crc_ok[i] ? "" : ", CHECKSUM DIFFERS");
    } while (status == TL_FULL);
    if (status != TL_OK) fprintf(stderr, "@ %" PRIu64 ": %s\n", fault.position, tl_status_text(status));
    free(data);
    return status == TL_OK ? 0 : 1;
}
