/* Of tests of what the backend makes of cuBLASLt's algorithms: a product on the simulator, whose
 * algorithms do what cudasim/products.h is told. */
#ifndef QUIRE_TESTS_KERNELS_PRODUCT_FIXTURE_H
#define QUIRE_TESTS_KERNELS_PRODUCT_FIXTURE_H

#include "kernels/backend.h"
#include "kernels/cudasim/include/cudasim/products.h"

enum { PRODUCT_FIXTURE_OUT = 24, PRODUCT_FIXTURE_COLS = 72, PRODUCT_FIXTURE_MOST_ROWS = 600 };

struct product_fixture {
    struct backend *b;
    struct matrix *matrix; /* [OUT, COLS] */
    struct buffer x, out;  /* bf16 [MOST_ROWS, COLS], float [MOST_ROWS, OUT] */
    float weights[PRODUCT_FIXTURE_OUT * PRODUCT_FIXTURE_COLS];
    float values[PRODUCT_FIXTURE_MOST_ROWS * PRODUCT_FIXTURE_COLS]; /* of x */
};

/* Nothing is set. */
struct product_fixture *product_fixture_open(bool batch_invariant);
void product_fixture_close(struct product_fixture *f);

/* A setting of cudasim/products.h. */
void product_fixture_set(const char *spelling);
struct cudasim_product_calls product_fixture_count(void);

void product_fixture_enqueue(struct product_fixture *f, int32_t num_rows);
/* Returns whether the product is right; gives the first row of it. */
bool product_fixture_is_right(struct product_fixture *f, int32_t num_rows,
                              float first_row[PRODUCT_FIXTURE_OUT]);
/* Asserts that it is. */
void product_fixture_multiply(struct product_fixture *f, int32_t num_rows,
                              float first_row[PRODUCT_FIXTURE_OUT]);

#endif
