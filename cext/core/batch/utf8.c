#include "batch/utf8.h"

#include <string.h>

/* Length of the well-formed sequence at `data`; if it is malformed, minus the length of its maximal malformed part
 * (Unicode 15, section 3.9, "Substitution of Maximal Subparts"), but that the JDK takes a UTF-16 surrogate written as
 * three bytes for one malformed part. */
static int sequence(const uint8_t *data, size_t size) {
    uint8_t lead = data[0], low = 0x80, high = 0xbf;
    int length;
    if (lead < 0x80) return 1;
    if (lead >= 0xc2 && lead <= 0xdf) {
        length = 2;
    } else if (lead >= 0xe0 && lead <= 0xef) {
        length = 3;
        if (lead == 0xe0) low = 0xa0;
    } else if (lead >= 0xf0 && lead <= 0xf4) {
        length = 4;
        if (lead == 0xf0) low = 0x90;
        if (lead == 0xf4) high = 0x8f;
    } else {
        return -1;
    }
    for (int i = 1; i < length; i++) {
        if ((size_t)i >= size || data[i] < low || data[i] > high) return -i;
        low = 0x80;
        high = 0xbf;
    }
    if (lead == 0xed && data[1] >= 0xa0) return -length;
    return length;
}

static size_t ascii_prefix(const uint8_t *data, size_t size) {
    size_t i = 0;
    for (; size - i >= 8; i += 8) {
        uint64_t word;
        memcpy(&word, data + i, 8);
        if (word & 0x8080808080808080ull) break;
    }
    while (i < size && data[i] < 0x80) i++;
    return i;
}

int64_t tl_utf8_replaced_size(const uint8_t *data, size_t size) {
    size_t i = ascii_prefix(data, size);
    int64_t out = (int64_t)i;
    while (i < size) {
        int length = sequence(data + i, size - i);
        out += length > 0 ? length : 3;
        i += (size_t)(length > 0 ? length : -length);
    }
    return out;
}

bool tl_utf8_is_valid(const uint8_t *data, size_t size) {
    for (size_t i = ascii_prefix(data, size); i < size;) {
        int length = sequence(data + i, size - i);
        if (length < 0) return false;
        i += (size_t)length;
    }
    return true;
}

void tl_utf8_replace(const uint8_t *data, size_t size, uint8_t *out) {
    size_t i = ascii_prefix(data, size);
    memcpy(out, data, i);
    out += i;
    while (i < size) {
        int length = sequence(data + i, size - i);
        if (length > 0) {
            memcpy(out, data + i, (size_t)length);
            out += length;
            i += (size_t)length;
        } else {
            memcpy(out, "\xef\xbf\xbd", 3);
            out += 3;
            i += (size_t)-length;
        }
    }
}
