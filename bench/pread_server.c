/* Answers Fetch requests with the same bytes of a file, by pread and send: what a server of Fetch cannot do better.
 *
 * pread_server PORT FILE SIZE
 *
 * Each request on a connection is read whole and answered with the first SIZE bytes of FILE as the records of partition 0
 * of a topic, Fetch v11. A thread a connection. */
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
#include <sys/uio.h>
#include <unistd.h>

static int file;
static size_t size;

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
    while (take(fd, head, 4)) {
        uint32_t length;
        memcpy(&length, head, 4);
        length = ntohl(length);
        if (length > sizeof asked || !take(fd, asked, length) || pread(file, answer + HEAD, size, 0) != (ssize_t)size ||
            !give(fd, answer, HEAD + size)) {
            break;
        }
    }
    free(answer);
    close(fd);
    return NULL;
}

int main(int count, char **given) {
    if (count != 4) {
        fprintf(stderr, "pread_server PORT FILE SIZE\n");
        return 2;
    }
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(given[1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    file = open(given[2], O_RDONLY);
    size = (size_t)atoll(given[3]);
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
