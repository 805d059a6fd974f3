/* Answers Fetch requests with bytes of a file, by pread and send: what a server of Fetch cannot do better.
 *
 * pread_server PORT FILE SIZE [PLACES CHUNK_BYTES]
 *
 * Each request on a connection is read whole and answered with SIZE bytes as the records of partition 0 of a topic, Fetch
 * v11. A thread a connection. Without PLACES these are the first bytes of FILE, each time. With PLACES the file has the
 * chunks that bench/bare.py writes with zstd and AES, and they are the bytes that follow: pread, decrypt, decompress
 * and send, nothing between; PLACES has position and size of each chunk, CHUNK_BYTES is what comes out of one. */
#define _GNU_SOURCE 1
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bare.c"

static int file;
static size_t size;
static store opened; /* its chunks are NULL where the file is sent as it is */
static int64_t chunk_count;

/* Where a connection is in the chunks: bytes of the open one that were not sent, and the next chunk. */
typedef struct {
    uint8_t *stored, *plain, *data;
    size_t at, end;
    int64_t next;
} reader;

static void put32(uint8_t *at, uint32_t value) {
    value = htonl(value);
    memcpy(at, &value, 4);
}

static bool take(int fd, uint8_t *out, size_t left) {
    while (left) {
        ssize_t got = read(fd, out, left);
        if (got <= 0) {
            return false;
        }
        out += got;
        left -= (size_t)got;
    }
    return true;
}

static bool give(int fd, const uint8_t *data, size_t left) {
    while (left) {
        ssize_t sent = send(fd, data, left, MSG_NOSIGNAL);
        if (sent <= 0) {
            return false;
        }
        data += sent;
        left -= (size_t)sent;
    }
    return true;
}

static bool open_next(reader *own) {
    if (own->next == chunk_count) {
        own->next = 0;
    }
    int64_t made = read_chunk(&opened, own->next++, own->stored, own->plain, own->data);
    own->at = 0;
    own->end = made < 0 ? 0 : (size_t)made;
    return made > 0;
}

static bool give_opened(int fd, const uint8_t *head, size_t head_size, reader *own) {
    if (send(fd, head, head_size, MSG_NOSIGNAL | MSG_MORE) != (ssize_t)head_size) {
        return false;
    }
    for (size_t left = size; left;) {
        if (own->at == own->end && !open_next(own)) {
            return false;
        }
        size_t some = own->end - own->at < left ? own->end - own->at : left;
        if (!give(fd, own->data + own->at, some)) {
            return false;
        }
        own->at += some;
        left -= some;
    }
    return true;
}

static bool give_plain(int fd, uint8_t *answer, size_t head_size) {
    return pread(file, answer + head_size, size, 0) == (ssize_t)size && give(fd, answer, head_size + size);
}

static void *serve(void *given) {
    /* correlation id, throttle, error, session, topics, name "t", partitions, index, error, three offsets, no list of
     * aborted transactions, no preferred replica, size of the records */
    enum { HEAD = 4 + 4 + 4 + 2 + 4 + 4 + 3 + 4 + 4 + 2 + 24 + 4 + 4 + 4 };
    int fd = (int)(intptr_t)given;
    uint8_t *answer = calloc(1, HEAD + size), head[4], asked[4096];
    put32(answer, (uint32_t)(HEAD - 4 + size));
    put32(answer + 4, 7);
    put32(answer + 18, 1);
    memcpy(answer + 22, "\0\1t", 3);
    put32(answer + 25, 1);
    memset(answer + 59, 0xff, 8);
    put32(answer + HEAD - 4, (uint32_t)size);
    size_t room = opened.chunks ? (size_t)opened.chunk_bytes + (1 << 20) : 1;
    reader own = {.stored = malloc(room), .plain = malloc(room), .data = malloc(room)};
    while (take(fd, head, 4)) {
        uint32_t length;
        memcpy(&length, head, 4);
        length = ntohl(length);
        if (length > sizeof asked || !take(fd, asked, length) ||
            !(opened.chunks ? give_opened(fd, answer, HEAD, &own) : give_plain(fd, answer, HEAD))) {
            break;
        }
    }
    free(own.stored);
    free(own.plain);
    free(own.data);
    free(answer);
    close(fd);
    return NULL;
}

static bool open_chunks(const char *path, int64_t chunk_bytes) {
    struct stat found;
    int places = open(path, O_RDONLY);
    if (places < 0 || fstat(places, &found)) {
        return false;
    }
    chunk *read_in = malloc((size_t)found.st_size);
    chunk_count = found.st_size / (int64_t)sizeof *read_in;
    opened = (store){.descriptor = file, .compressed = 1, .encrypted = 1, .chunk_bytes = chunk_bytes, .chunks = read_in};
    for (int i = 0; i < KEY_BYTES; i++) {
        opened.key[i] = (uint8_t)i;
    }
    bool is_read = pread_all(places, (uint8_t *)read_in, found.st_size, 0) == found.st_size;
    close(places);
    return is_read && chunk_count > 0;
}

int main(int count, char **given) {
    if (count != 4 && count != 6) {
        fprintf(stderr, "pread_server PORT FILE SIZE [PLACES CHUNK_BYTES]\n");
        return 2;
    }
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(given[1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    file = open(given[2], O_RDONLY);
    size = (size_t)atoll(given[3]);
    if (count == 6 && !open_chunks(given[4], atoll(given[5]))) {
        perror(given[4]);
        return 1;
    }
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (file < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 256)) {
        perror("pread_server");
        return 1;
    }
    for (;;) {
        pthread_t thread;
        int fd = accept(listener, NULL, NULL);
        if (fd < 0) {
            continue;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (pthread_create(&thread, NULL, serve, (void *)(intptr_t)fd)) {
            close(fd);
        } else {
            pthread_detach(thread);
        }
    }
}
