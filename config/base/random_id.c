#include "config/base/random_id.h"

#include "config/base/check.h"

#include <string.h>
#include <sys/random.h>

int random_id(const char *prefix, int num_digits, char *out, size_t capacity) {
    static const char digits[] = "0123456789abcdef";
    unsigned char random[RANDOM_ID_MAX_DIGITS / 2];
    size_t prefix_length = strlen(prefix), num_bytes = (size_t)num_digits / 2;
    CHECK(num_bytes <= sizeof(random) && prefix_length + 2 * num_bytes < capacity);
    if (getrandom(random, num_bytes, 0) != (ssize_t)num_bytes)
        return -1;
    memcpy(out, prefix, prefix_length);
    for (size_t i = 0; i < num_bytes; i++) {
        out[prefix_length + 2 * i] = digits[random[i] >> 4];
        out[prefix_length + 2 * i + 1] = digits[random[i] & 15];
    }
    out[prefix_length + 2 * num_bytes] = '\0';
    return 0;
}
