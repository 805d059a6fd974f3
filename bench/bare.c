/* What the limits are measured with: the libraries' plain calls, contexts and output used again, nothing between.
 *
 * Built by bench/bare.py; no part of the package. Functions return the bytes that were made, or -1.
 */
#include <lz4.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zstd.h>

enum { IV_BYTES = 12, TAG_BYTES = 16, KEY_BYTES = 32 };

int64_t bare_decompress(const uint8_t *in, int64_t size, uint8_t *out, int64_t capacity) {
    static _Thread_local ZSTD_DCtx *context;
    if (!context && !(context = ZSTD_createDCtx())) return -1;
    size_t made = ZSTD_decompressDCtx(context, out, (size_t)capacity, in, (size_t)size);
    return ZSTD_isError(made) ? -1 : (int64_t)made;
}

int64_t bare_compress(int level, const uint8_t *in, int64_t size, uint8_t *out, int64_t capacity) {
    static _Thread_local ZSTD_CCtx *context;
    if (!context && !(context = ZSTD_createCCtx())) return -1;
    if (ZSTD_isError(ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, level))) return -1;
    size_t made = ZSTD_compress2(context, out, (size_t)capacity, in, (size_t)size);
    return ZSTD_isError(made) ? -1 : (int64_t)made;
}

/* Ciphertext, then the tag. */
int64_t bare_seal(const uint8_t *key, const uint8_t *aad, int64_t aad_size, const uint8_t *iv, const uint8_t *in,
                  int64_t size, uint8_t *out) {
    static _Thread_local EVP_CIPHER_CTX *context;
    int made = 0;
    if (!context && (!(context = EVP_CIPHER_CTX_new()) ||
                     EVP_EncryptInit_ex(context, EVP_aes_256_gcm(), NULL, NULL, NULL) != 1))
        return -1;
    if (EVP_EncryptInit_ex(context, NULL, NULL, key, iv) != 1) return -1;
    if (aad_size && EVP_EncryptUpdate(context, NULL, &made, aad, (int)aad_size) != 1) return -1;
    if (EVP_EncryptUpdate(context, out, &made, in, (int)size) != 1 || made != size) return -1;
    if (EVP_EncryptFinal_ex(context, out + size, &made) != 1) return -1;
    return EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_GET_TAG, TAG_BYTES, out + size) == 1 ? size + TAG_BYTES : -1;
}

/* ---- batches of a log */

typedef struct {
    int64_t position, size; /* of a piece: a block of LZ4, a frame of zstd */
} piece;

/* Blocks of LZ4 frames whose borders were found beforehand; a negative size is a stored block. Every batch begins the
 * output anew. */
int64_t bare_lz4(const uint8_t *in, const piece *pieces, const int64_t *batch_ends, int64_t batches, uint8_t *out,
                 int64_t capacity) {
    int64_t total = 0, i = 0;
    for (int64_t batch = 0; batch < batches; batch++) {
        int64_t at = 0;
        for (; i < batch_ends[batch]; i++) {
            if (pieces[i].size < 0) {
                if (-pieces[i].size > capacity - at) return -1;
                memcpy(out + at, in + pieces[i].position, (size_t)-pieces[i].size);
                at -= pieces[i].size;
                continue;
            }
            int made = LZ4_decompress_safe((const char *)in + pieces[i].position, (char *)out + at,
                                           (int)pieces[i].size, (int)(capacity - at));
            if (made < 0) return -1;
            at += made;
        }
        total += at;
    }
    return total;
}

int64_t bare_zstd(const uint8_t *in, const piece *frames, int64_t count, uint8_t *out, int64_t capacity) {
    int64_t total = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t made = bare_decompress(in + frames[i].position, frames[i].size, out, capacity);
        if (made < 0) return -1;
        total += made;
    }
    return total;
}

/* ---- chunks of a segment in a file */

typedef struct {
    int64_t position, size; /* of a chunk as it is stored */
} chunk;

typedef struct {
    int32_t descriptor, compressed, encrypted;
    int64_t chunk_bytes, size_bytes; /* of the log: of a chunk but the last one, and in all */
    const chunk *chunks;
    uint8_t key[KEY_BYTES];
} store;

static int64_t pread_all(int descriptor, uint8_t *out, int64_t size, int64_t position) {
    for (int64_t done = 0; done < size;) {
        ssize_t got = pread(descriptor, out + done, (size_t)(size - done), position + done);
        if (got <= 0) return -1;
        done += got;
    }
    return size;
}

static int64_t decrypt(const store *from, const uint8_t *in, int64_t size, uint8_t *out) {
    static _Thread_local EVP_CIPHER_CTX *context;
    if (!context && (!(context = EVP_CIPHER_CTX_new()) ||
                     EVP_DecryptInit_ex(context, EVP_aes_256_gcm(), NULL, from->key, NULL) != 1))
        return -1;
    int made = 0, text = (int)(size - IV_BYTES - TAG_BYTES);
    if (EVP_DecryptInit_ex(context, NULL, NULL, NULL, in) != 1) return -1;
    if (EVP_DecryptUpdate(context, out, &made, in + IV_BYTES, text) != 1 || made != text) return -1;
    if (EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_SET_TAG, TAG_BYTES, (void *)(in + IV_BYTES + text)) != 1) return -1;
    return EVP_DecryptFinal_ex(context, out + text, &made) == 1 ? text : -1;
}

/* One chunk, whole. ``stored`` and ``opened`` have room for one as it is stored. */
static int64_t read_chunk(const store *from, int64_t number, uint8_t *stored, uint8_t *opened, uint8_t *out) {
    const chunk *it = &from->chunks[number];
    if (!from->compressed && !from->encrypted) return pread_all(from->descriptor, out, it->size, it->position);
    if (pread_all(from->descriptor, stored, it->size, it->position) < 0) return -1;
    if (!from->encrypted) return bare_decompress(stored, it->size, out, from->chunk_bytes);
    if (!from->compressed) return decrypt(from, stored, it->size, out);
    int64_t size = decrypt(from, stored, it->size, opened);
    return size < 0 ? -1 : bare_decompress(opened, size, out, from->chunk_bytes);
}

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

/* A range at each of the positions, timed one by one. The last one ends at the ``bare_first`` byte of ``out``, which has
 * room for the range and two chunks more. */
int64_t bare_reads(const store *from, const int64_t *starts, int64_t count, int64_t length, uint8_t *stored,
                   uint8_t *opened, uint8_t *out, double *seconds) {
    int64_t total = 0;
    for (int64_t i = 0; i < count; i++) {
        double began = now();
        if (!from->compressed && !from->encrypted) {
            if (pread_all(from->descriptor, out, length, starts[i]) < 0) return -1;
        } else {
            int64_t first = starts[i] / from->chunk_bytes, last = (starts[i] + length - 1) / from->chunk_bytes;
            for (int64_t number = first; number <= last; number++)
                if (read_chunk(from, number, stored, opened, out + (number - first) * from->chunk_bytes) < 0) return -1;
        }
        seconds[i] = now() - began;
        total += length;
    }
    return total;
}

/* Every chunk once; whoever is free takes the next one. */
int64_t bare_whole(const store *from, int64_t chunks, _Atomic int64_t *next, uint8_t *stored, uint8_t *opened,
                   uint8_t *out) {
    int64_t total = 0;
    for (int64_t number; (number = atomic_fetch_add(next, 1)) < chunks;) {
        int64_t made = read_chunk(from, number, stored, opened, out);
        if (made < 0) return -1;
        total += made;
    }
    return total;
}

/* The versions of the libraries, for the tables. */
const char *bare_lz4_version(void) { return LZ4_versionString(); }
const char *bare_zstd_version(void) { return ZSTD_versionString(); }
const char *bare_crypto_version(void) { return OpenSSL_version(OPENSSL_VERSION); }
