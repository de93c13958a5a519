/* Makes the `system_fingerprint` of answers. */
#ifndef QUIRE_SERVER_PROGRAM_COMMAND_FINGERPRINT_H
#define QUIRE_SERVER_PROGRAM_COMMAND_FINGERPRINT_H

#include "config/base/error.h"
#include "engine/executor/executor.h"
#include "models/config/model.h"

#define FINGERPRINT_BYTES 32 /* "quire-", 16 digits, "-variant" */

/* Equal fingerprints promise equal bytes for equal requests with equal seeds: it covers `build`
 * (build_hash), the model's digest and chat templates, the properties of the machine that decide
 * the bits, and the options that affect computation. One that ends in "-variant" promises nothing,
 * because results also depend on which requests run together. ERROR_MEMORY. */
int command_fingerprint(const struct executor_config *config, const struct executor_info *info,
                        const struct model *model, const char *build,
                        char out[static FINGERPRINT_BYTES], struct error *err);

#define BLOCK_IDENTITY_BYTES 32

/* Writes an identity of KV blocks: equal for executors that compute the same bytes of a block for
 * equal tokens and adapters, and lay them out alike. ERROR_MEMORY. */
int command_fingerprint_blocks(const struct executor_config *config,
                               const struct executor_info *info, const struct model *model,
                               const char *build, uint8_t out[static BLOCK_IDENTITY_BYTES],
                               struct error *err);

#endif
