#include "tests/kernels/machine_loops.h"

#include <stdint.h>
#include <string.h>

static void read_words(const char *data, size_t bytes) {
    uint64_t sums[4] = {0}, words[4];
    for (size_t i = 0; i < bytes; i += sizeof(words)) {
        memcpy(words, data + i, sizeof(words));
        for (int j = 0; j < 4; j++)
            sums[j] |= words[j];
    }
    volatile uint64_t sink = sums[0] | sums[1] | sums[2] | sums[3];
    (void)sink;
}

struct machine_loops machine_loops_select(void) {
    return (struct machine_loops){.vectors = "none", .read = read_words};
}
