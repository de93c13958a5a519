/* What DRY takes from each token's logit after a request's prompt and output, found without the
 * engine's arithmetic: every place is compared with the end, token by token. */
#ifndef QUIRE_TESTS_SIM_DRY_ORACLE_H
#define QUIRE_TESTS_SIM_DRY_ORACLE_H

#include "engine/request/request.h"
#include "tests/sim/fake_tokenizer.h"

/* Writes the penalties, 0 where there is none. */
void dry_oracle_find(const struct request *request, const int32_t *output, int32_t num_output,
                     float penalties[FAKE_VOCAB_SIZE]);

#endif
