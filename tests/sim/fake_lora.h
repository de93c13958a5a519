/* Adapters without files, for the simulation: stands in for models/lora. Each has two matrices of
 * FAKE_LORA_ROWS rows; every row holds the adapter's number and its own place, so that whoever is
 * given a piece sees whose it is and whether one is missing. Counts those that are open. */
#ifndef QUIRE_TESTS_SIM_FAKE_LORA_H
#define QUIRE_TESTS_SIM_FAKE_LORA_H

#include "engine/request/adapter.h"

#define FAKE_LORA_ROWS 40 /* of a matrix */

/* A row as it is written; large, so that a step has room for a few. */
struct fake_lora_row {
    uint64_t number; /* of the adapter */
    int32_t matrix, row;
    char rest[16 * 1024 - 16];
};

struct lora_shape fake_lora_shape(int32_t num_slots);
/* Equal numbers are equal adapters. Never 0. */
struct adapter *fake_lora_adapter(const char *name, uint64_t number);
uint64_t fake_lora_number(const struct adapter *adapter);
int fake_lora_num_open(void); /* not closed yet */

#endif
