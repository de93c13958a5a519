/* One token through the whole engine before the server says it is ready: a model or backend that
 * cannot compute then fails at start, not with the first user. */
#ifndef QUIRE_SERVER_SELF_TEST_H
#define QUIRE_SERVER_SELF_TEST_H

#include "config/base/error.h"
#include "engine/engine.h"

/* wake_fd: the eventfd that the engine's wake callback writes; nobody else reads it or the ready
 * list meanwhile. ERROR_DEVICE when no token comes back within timeout_ms, ERROR_MODEL when one
 * comes whose logits are no numbers. */
int self_test_run(struct engine *engine, int32_t prompt_token, int wake_fd, int timeout_ms,
                  struct error *err);

#endif
