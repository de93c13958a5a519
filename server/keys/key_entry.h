/* One API key with its rights, and the fields that a key file or a command line sets. No message
 * ever repeats a value: it may be a key in the wrong place. */
#ifndef QUIRE_SERVER_KEYS_KEY_ENTRY_H
#define QUIRE_SERVER_KEYS_KEY_ENTRY_H

#include "config/base/error.h"
#include "server/keys/auth.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KEY_NAME_BYTES 65 /* with the NUL */
#define KEY_MAX_MODELS 64
#define KEY_MAX_MODEL_BYTES 255
#define KEY_NEVER INT64_MAX
#define KEY_MAX_FIELDS 16
#define KEY_WHAT_BYTES 256

struct key_entry {
    struct auth_hash hash;
    char name[KEY_NAME_BYTES]; /* A-Z a-z 0-9 . _ -; empty: a key without limits and name */
    int64_t weight; /* weight of its share of the server, relative to others: 1 to 1000 */
    int64_t requests_per_minute, tokens_per_minute, max_concurrency; /* 0: no limit */
    int64_t min_priority, max_priority; /* a request's priority is clamped to these */
    int64_t expires;                    /* Unix seconds; KEY_NEVER */
    bool is_admin;                      /* may use the routes of administrators */
    int num_models;                     /* 0: all */
    char **models;                      /* owned: [num_models] */
    uint32_t given;                     /* bit i: field i was set */
};

/* Makes an entry without name, hash and limits. */
void key_entry_init(struct key_entry *entry);
void key_entry_finish(struct key_entry *entry);

/* Returns the index of a field, below KEY_MAX_FIELDS, with `-` and `_` equivalent; -1: unknown. */
int key_field_find(const char *name, size_t length);
const char *key_field_name(int field);
/* Returns whether it takes several values, one with each key_entry_set. */
bool key_field_is_list(int field);
/* Sets a field, or adds a value to a list. Returns -1 on failure, and `what` says what is allowed:
 * "weight must be a whole number from 1 to 1000". */
int key_entry_set(struct key_entry *entry, int field, const char *value, char what[KEY_WHAT_BYTES]);
/* Checks that name and hash are given and that the fields fit together; otherwise returns -1 and
 * `what`. */
int key_entry_check(const struct key_entry *entry, char what[KEY_WHAT_BYTES]);
/* Appends the names of all fields, separated by ", ". */
void key_field_list(char out[KEY_WHAT_BYTES]);

/* Writes the hash in the form of key files: "sha256:" and 64 hexadecimal digits. */
#define KEY_HASH_TEXT_BYTES (7 + 2 * AUTH_HASH_BYTES + 1)
void key_hash_format(const struct auth_hash *hash, char out[KEY_HASH_TEXT_BYTES]);

#endif
