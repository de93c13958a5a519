/* How the body of another endpoint becomes that of a chat: a tree of the chat's members that refers
 * into the other body's. On failure the functions return -1, or NULL, and fill *err; what they were
 * to take over is freed then. */
#ifndef QUIRE_SERVER_API_CHAT_CHAT_TRANSLATION_H
#define QUIRE_SERVER_API_CHAT_CHAT_TRANSLATION_H

#include "config/json/api_error.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

/* Adds a member and takes it over; NULL: memory was short when it was made. */
int chat_translation_add(cJSON *object, const char *name, cJSON *member, struct api_error *err);
/* Adds a text that outlives the tree. */
int chat_translation_add_text(cJSON *object, const char *name, const char *text,
                              struct api_error *err);
/* Adds a member that stays the other body's; nothing where that is absent or null. */
int chat_translation_refer(cJSON *object, const char *name, const cJSON *member,
                           struct api_error *err);
/* Return a new reference to what stays the other body's, or an item that is appended to an array;
 * NULL when memory is short. */
cJSON *chat_translation_reference(const cJSON *item);
cJSON *chat_translation_append(cJSON *array, cJSON *item, struct api_error *err);

/* Passes the members of an object that have no place in the translation on to the chat, under their
 * paths ("tools[].defer_loading"), each path once: what the chat does not know either is named as
 * ignored, or refused. A body with more of them than an answer could name is a 400. */
int chat_translation_pass_on(cJSON *chat, const cJSON *object, const char *prefix,
                             const char *const *known, size_t num_known, struct api_error *err);

/* Returns whether the name is among them. */
bool chat_translation_has(const char *const *names, size_t count, const char *name);

#define CHAT_TRANSLATION_HAS(names, name)                                                          \
    chat_translation_has(names, sizeof(names) / sizeof((names)[0]), name)
#define CHAT_TRANSLATION_PASS_ON(chat, object, prefix, known, err)                                 \
    chat_translation_pass_on(chat, object, prefix, known, sizeof(known) / sizeof((known)[0]), err)

#endif
