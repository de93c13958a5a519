/* The server as a key sees it: with the models that the key may use, and its tenant. */
#ifndef QUIRE_SERVER_KEYS_KEY_MODELS_H
#define QUIRE_SERVER_KEYS_KEY_MODELS_H

#include "config/options.h"
#include "server/api/call/api_context.h"
#include "server/keys/api_keys.h"

/* What such a context points to. */
struct key_models {
    struct api_context context;
    char *names[OPTIONS_MAX_LIST];
};

/* Returns the context itself where there is no key, and else a copy in *models with its tenant and the
 * names that it may use, maybe none. It holds pointers to what the context does, but nothing of the
 * key. */
const struct api_context *key_models_context(const struct api_key *key,
                                             const struct api_context *context,
                                             struct key_models *models);
/* Returns whether there is any that the key may use. */
bool key_models_any(const struct api_key *key, const struct api_context *context);

#endif
