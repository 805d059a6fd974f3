/* A Kafka client that fetches one partition from an offset to another and throws away what it gets.
 *
 * fetch_client HOST PORT TOPIC PARTITION START END PARTITION_MAX_BYTES MODE
 *
 * MODE is "discard" (the batches are walked, no more), "hash" (CRC-32C over the bytes of all whole batches from START on,
 * up to the one that reaches END), or "repeat" (END requests for START, each one's time in µs is printed). Fetch v11, one
 * request under way.
 * The last line of the output is: bytes of records, requests, next offset, hash. */
#define _GNU_SOURCE 1
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tierlog/checksum.h"

static void fail(const char *what) {
    fprintf(stderr, "fetch_client: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint8_t *put16(uint8_t *at, int16_t value) {
    uint16_t bits = htons((uint16_t)value);
    memcpy(at, &bits, 2);
    return at + 2;
}

static uint8_t *put32(uint8_t *at, int32_t value) {
    uint32_t bits = htonl((uint32_t)value);
    memcpy(at, &bits, 4);
    return at + 4;
}

static uint8_t *put64(uint8_t *at, int64_t value) {
    at = put32(at, (int32_t)(value >> 32));
    return put32(at, (int32_t)(uint32_t)value);
}

static uint8_t *put_text(uint8_t *at, const char *text) {
    size_t size = strlen(text);
    at = put16(at, (int16_t)size);
    memcpy(at, text, size);
    return at + size;
}

static int16_t get16(const uint8_t *at) {
    return (int16_t)((at[0] << 8) | at[1]);
}

static int32_t get32(const uint8_t *at) {
    return (int32_t)(((uint32_t)at[0] << 24) | ((uint32_t)at[1] << 16) | ((uint32_t)at[2] << 8) | at[3]);
}

static int64_t get64(const uint8_t *at) {
    return (int64_t)(((uint64_t)(uint32_t)get32(at) << 32) | (uint32_t)get32(at + 4));
}

static int connect_to(const char *host, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int one = 1, receive = 4 << 20;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || inet_pton(AF_INET, host, &address.sin_addr) != 1) {
        fail(host);
    }
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive, sizeof receive);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(fd, (struct sockaddr *)&address, sizeof address)) {
        fail("connect");
    }
    return fd;
}

static void read_all(int fd, uint8_t *out, size_t size) {
    while (size) {
        ssize_t got = read(fd, out, size);
        if (got <= 0) {
            fail("read");
        }
        out += got;
        size -= (size_t)got;
    }
}

static size_t request(uint8_t *out, const char *topic, int partition, int64_t offset, int max_bytes) {
    uint8_t *at = out + 4;
    at = put16(at, 1);
    at = put16(at, 11);
    at = put32(at, 7);
    at = put_text(at, "fetch_client");
    at = put32(at, -1);
    at = put32(at, 500);
    at = put32(at, 1);
    at = put32(at, 64 << 20);
    *at++ = 0;
    at = put32(at, 0);
    at = put32(at, -1);
    at = put32(at, 1);
    at = put_text(at, topic);
    at = put32(at, 1);
    at = put32(at, partition);
    at = put32(at, -1);
    at = put64(at, offset);
    at = put64(at, -1);
    at = put32(at, max_bytes);
    at = put32(at, 0);
    at = put_text(at, "");
    put32(out, (int32_t)(at - out - 4));
    return (size_t)(at - out);
}

int main(int count, char **given) {
    if (count != 9) {
        fprintf(stderr, "fetch_client HOST PORT TOPIC PARTITION START END PARTITION_MAX_BYTES discard|hash|repeat\n");
        return 2;
    }
    const char *topic = given[3], *mode = given[8];
    int partition = atoi(given[4]), max_bytes = atoi(given[7]);
    int64_t next = atoll(given[5]), end = atoll(given[6]);
    int hashes = !strcmp(mode, "hash"), repeats = !strcmp(mode, "repeat");
    int fd = connect_to(given[1], atoi(given[2]));
    uint8_t asked[512];
    size_t room = 0;
    uint8_t *answer = NULL;
    uint64_t bytes = 0, requests = 0;
    uint32_t hash = 0;
    int empty = 0;
    while (repeats ? (int64_t)requests < end : next < end) {
        struct timespec began, done;
        size_t size = request(asked, topic, partition, next, max_bytes);
        uint8_t head[4];
        clock_gettime(CLOCK_MONOTONIC, &began);
        if (write(fd, asked, size) != (ssize_t)size) {
            fail("write");
        }
        read_all(fd, head, 4);
        size = (size_t)(uint32_t)get32(head);
        if (size > room) {
            answer = realloc(answer, room = size);
        }
        read_all(fd, answer, size);
        clock_gettime(CLOCK_MONOTONIC, &done);
        requests++;
        if (repeats) {
            double spent = (double)(done.tv_sec - began.tv_sec) * 1e6 + (double)(done.tv_nsec - began.tv_nsec) / 1e3;
            printf("%.1f\n", spent);
        }
        /* correlation id, throttle time, error, session id, one topic, its name, one partition, its index */
        const uint8_t *at = answer + 4 + 4;
        int16_t error = get16(at);
        at += 2 + 4 + 4;
        at += 2 + get16(at);
        at += 4 + 4;
        error = error ? error : get16(at);
        if (error) {
            fprintf(stderr, "fetch_client: error %d at offset %lld\n", error, (long long)next);
            return 1;
        }
        at += 2 + 8 + 8 + 8;
        int32_t aborted = get32(at);
        at += 4 + 16 * (aborted < 0 ? 0 : aborted) + 4;
        int32_t left = get32(at);
        at += 4;
        bytes += (uint64_t)(left < 0 ? 0 : left);
        if (repeats) {
            continue;
        }
        int64_t before = next;
        while (left > 61) {
            int64_t base = get64(at);
            int32_t length = get32(at + 8) + 12;
            if (length > left) {
                break;
            }
            int64_t last = base + get32(at + 23);
            if (hashes && last >= next) {
                hash = tl_crc32c(hash, at, (size_t)length);
            }
            if (last >= next) {
                next = last + 1;
            }
            at += length;
            left -= length;
            if (next >= end) {
                break;
            }
        }
        empty = next > before ? 0 : empty + 1;
        if (empty > 20) {
            fprintf(stderr, "fetch_client: nothing comes at offset %lld\n", (long long)next);
            return 1;
        }
    }
    printf("%llu %llu %lld %08x\n", (unsigned long long)bytes, (unsigned long long)requests, (long long)next, hash);
    return 0;
}
