#include "tests/sim/fake_lora.h"

#include "config/base/check.h"
#include "config/base/numbers.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define NUM_MATRICES 2

struct lora_adapter {
    uint64_t number;
    uint8_t digest[CONTENT_HASH_BYTES];
};

static atomic_int num_open;

struct lora_shape fake_lora_shape(int32_t num_slots) {
    return (struct lora_shape){.num_slots = num_slots, .max_rank = 8};
}

struct adapter *fake_lora_adapter(const char *name, uint64_t number) {
    struct lora_adapter *lora = calloc(1, sizeof(*lora));
    CHECK(lora != NULL && number != 0);
    lora->number = number;
    memcpy(lora->digest, &number, sizeof(number));
    atomic_fetch_add(&num_open, 1);
    struct adapter *adapter = adapter_create(name, lora);
    CHECK(adapter != NULL);
    return adapter;
}

uint64_t fake_lora_number(const struct adapter *adapter) {
    return adapter->lora->number;
}

int fake_lora_num_open(void) {
    return atomic_load(&num_open);
}

/* --- As in models/lora/lora_adapter.h --- */

void lora_adapter_close(struct lora_adapter *adapter) {
    if (adapter == NULL)
        return;
    atomic_fetch_sub(&num_open, 1);
    free(adapter);
}

const uint8_t *lora_adapter_digest(const struct lora_adapter *adapter) {
    return adapter->digest;
}

size_t lora_adapter_max_bytes(const struct model_config *config, const struct lora_shape *shape) {
    return sizeof(struct lora_adapter);
}

bool lora_rows_next(const struct model_config *config, const struct lora_shape *shape,
                    size_t max_bytes, struct lora_rows *rows) {
    int32_t most = (int32_t)(max_bytes / sizeof(struct fake_lora_row));
    int32_t next = rows->first_row + rows->num_rows;
    if (next == FAKE_LORA_ROWS) {
        rows->matrix++;
        next = 0;
    }
    if (rows->matrix == NUM_MATRICES)
        return false;
    rows->first_row = next;
    rows->num_rows = min_int32(max_int32(most, 1), FAKE_LORA_ROWS - next);
    return true;
}

size_t lora_rows_bytes(const struct model_config *config, const struct lora_shape *shape,
                       const struct lora_rows *rows) {
    return (size_t)rows->num_rows * sizeof(struct fake_lora_row);
}

void lora_adapter_copy(const struct lora_adapter *adapter, const struct lora_rows *rows,
                       void *out) {
    for (int32_t i = 0; i < rows->num_rows; i++) {
        struct fake_lora_row row = {
            .number = adapter->number, .matrix = rows->matrix, .row = rows->first_row + i};
        memcpy((struct fake_lora_row *)out + i, &row, offsetof(struct fake_lora_row, rest));
    }
}
