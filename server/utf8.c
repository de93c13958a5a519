#include "server/utf8.h"

static bool in_range(unsigned char byte, unsigned char low, unsigned char high) {
    return byte >= low && byte <= high;
}

/* RFC 3629 section 4: only the second byte's range depends on the first. */
static bool second_is_valid(unsigned char first, unsigned char second) {
    switch (first) {
    case 0xE0:
        return in_range(second, 0xA0, 0xBF);
    case 0xED:
        return in_range(second, 0x80, 0x9F);
    case 0xF0:
        return in_range(second, 0x90, 0xBF);
    case 0xF4:
        return in_range(second, 0x80, 0x8F);
    default:
        return in_range(second, 0x80, 0xBF);
    }
}

static size_t sequence_bytes(unsigned char first) {
    if (first < 0x80)
        return 1;
    if (in_range(first, 0xC2, 0xDF))
        return 2;
    if (in_range(first, 0xE0, 0xEF))
        return 3;
    if (in_range(first, 0xF0, 0xF4))
        return 4;
    return 0;
}

size_t utf8_char_bytes(const char *data, size_t length) {
    if (length == 0)
        return 0;
    const unsigned char *bytes = (const unsigned char *)data;
    size_t count = sequence_bytes(bytes[0]);
    if (count == 0 || count > length)
        return 0;
    if (count > 1 && !second_is_valid(bytes[0], bytes[1]))
        return 0;
    for (size_t i = 2; i < count; i++) {
        if (!in_range(bytes[i], 0x80, 0xBF))
            return 0;
    }
    return count;
}

bool utf8_is_valid(const char *data, size_t length) {
    while (length > 0) {
        size_t count = utf8_char_bytes(data, length);
        if (count == 0)
            return false;
        data += count;
        length -= count;
    }
    return true;
}

size_t utf8_count_starts(const char *data, size_t length) {
    size_t count = 0;
    for (size_t i = 0; i < length; i++)
        count += ((unsigned char)data[i] & 0xC0) != 0x80;
    return count;
}
