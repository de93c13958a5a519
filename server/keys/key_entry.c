#include "server/keys/key_entry.h"

#include "server/keys/rate_limit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define HASH_PREFIX "sha256:"

/* Returns -1 for a value that is not allowed, -2 where memory is short. */
typedef int set_value(struct key_entry *entry, const char *value);

struct key_field {
    const char *name;
    size_t offset; /* of an int64_t between minimum and maximum, unless there is `set` */
    int64_t minimum, maximum;
    set_value *set;
    const char *allowed; /* of `set` */
    bool is_list;
};

static int set_name(struct key_entry *entry, const char *value) {
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t length = strlen(value);
    if (length == 0 || length >= KEY_NAME_BYTES || strspn(value, allowed) < length)
        return -1;
    memcpy(entry->name, value, length + 1);
    return 0;
}

static int hex_digit(char c) {
    static const char digits[] = "0123456789abcdef";
    const char *found = c != '\0' ? strchr(digits, c) : NULL;
    return found != NULL ? (int)(found - digits) : -1;
}

static int set_hash(struct key_entry *entry, const char *value) {
    if (strncmp(value, HASH_PREFIX, strlen(HASH_PREFIX)) != 0)
        return -1;
    const char *digits = value + strlen(HASH_PREFIX);
    if (strlen(digits) != 2 * AUTH_HASH_BYTES)
        return -1;
    for (int i = 0; i < AUTH_HASH_BYTES; i++) {
        int high = hex_digit(digits[2 * i]), low = hex_digit(digits[2 * i + 1]);
        if (high < 0 || low < 0)
            return -1;
        entry->hash.bytes[i] = (unsigned char)(high * 16 + low);
    }
    return 0;
}

/* Returns whether the value begins as the form does, whose zeros stand for digits. */
static bool has_form(const char *value, const char *form) {
    for (; *form != '\0'; value++, form++)
        if (*form == '0' ? *value < '0' || *value > '9' : *value != *form)
            return false;
    return true;
}

/* A date, which begins at midnight UTC, or a moment: nothing else that strptime would take. */
static int set_expires(struct key_entry *entry, const char *value) {
    struct tm time = {0}, given;
    const char *end = strptime(value, "%Y-%m-%d", &time);
    if (!has_form(value, "0000-00-00") || end != value + strlen("2026-01-31"))
        return -1;
    if (*end == 'T') {
        const char *clock = end + 1;
        end = strptime(clock, "%H:%M:%SZ", &time);
        if (!has_form(clock, "00:00:00Z") || end != clock + strlen("23:59:59Z"))
            return -1;
    }
    given = time;
    time_t seconds = timegm(&time);
    if (*end != '\0' || given.tm_mday != time.tm_mday || given.tm_sec != time.tm_sec)
        return -1;
    entry->expires = seconds;
    return 0;
}

static int add_model(struct key_entry *entry, const char *value) {
    size_t length = strlen(value);
    if (length == 0 || length > KEY_MAX_MODEL_BYTES || entry->num_models == KEY_MAX_MODELS)
        return -1;
    char **models = realloc(entry->models, (size_t)(entry->num_models + 1) * sizeof(*models));
    if (models == NULL)
        return -2;
    entry->models = models;
    models[entry->num_models] = strdup(value);
    if (models[entry->num_models] == NULL)
        return -2;
    entry->num_models++;
    return 0;
}

static int set_admin(struct key_entry *entry, const char *value) {
    entry->is_admin = strcmp(value, "true") == 0;
    return entry->is_admin || strcmp(value, "false") == 0 ? 0 : -1;
}

#define NUMBER(name, member, minimum, maximum)                                                     \
    { name, offsetof(struct key_entry, member), minimum, maximum, NULL, NULL, false }
#define OTHER(name, set, allowed, is_list)                                                         \
    { name, 0, 0, 0, set, allowed, is_list }

static const struct key_field fields[] = {
    OTHER("name", set_name, "1 to 64 characters of A-Z a-z 0-9 . _ -", false),
    OTHER("hash", set_hash, "sha256: and 64 digits of 0-9 a-f", false),
    NUMBER("weight", weight, 1, 1000),
    NUMBER("requests-per-minute", requests_per_minute, 1, RATE_LIMIT_MAX),
    NUMBER("tokens-per-minute", tokens_per_minute, 1, RATE_LIMIT_MAX),
    NUMBER("max-concurrency", max_concurrency, 1, 1000000),
    NUMBER("min-priority", min_priority, INT32_MIN, INT32_MAX),
    NUMBER("max-priority", max_priority, INT32_MIN, INT32_MAX),
    OTHER("models", add_model, "1 to 64 names of 1 to 255 bytes", true),
    OTHER("expires", set_expires, "a date as 2026-01-31, or a moment as 2026-01-31T12:00:00Z",
          false),
    OTHER("admin", set_admin, "true or false", false),
};

#define NUM_FIELDS ((int)(sizeof(fields) / sizeof(fields[0])))
_Static_assert(sizeof(fields) / sizeof(fields[0]) <= KEY_MAX_FIELDS, "KEY_MAX_FIELDS");

void key_entry_init(struct key_entry *entry) {
    *entry = (struct key_entry){
        .weight = 1, .min_priority = INT32_MIN, .max_priority = INT32_MAX, .expires = KEY_NEVER};
}

void key_entry_finish(struct key_entry *entry) {
    for (int i = 0; i < entry->num_models; i++)
        free(entry->models[i]);
    free(entry->models);
    entry->models = NULL;
    entry->num_models = 0;
}

int key_field_find(const char *name, size_t length) {
    for (int i = 0; i < NUM_FIELDS; i++) {
        const char *own = fields[i].name;
        size_t same = 0;
        if (strlen(own) != length)
            continue;
        while (same < length &&
               (name[same] == own[same] || (name[same] == '_' && own[same] == '-')))
            same++;
        if (same == length)
            return i;
    }
    return -1;
}

const char *key_field_name(int field) {
    return fields[field].name;
}

bool key_field_is_list(int field) {
    return fields[field].is_list;
}

void key_field_list(char out[KEY_WHAT_BYTES]) {
    size_t length = 0;
    for (int i = 0; i < NUM_FIELDS && length < KEY_WHAT_BYTES; i++)
        length += (size_t)snprintf(out + length, KEY_WHAT_BYTES - length, "%s%s", i > 0 ? ", " : "",
                                   fields[i].name);
}

/* Reads a decimal as people write it: a sign for negative ones only, no blanks, no leading zero. */
static int set_number(struct key_entry *entry, const struct key_field *field, const char *value) {
    const char *digits = value + (value[0] == '-');
    size_t length = strspn(digits, "0123456789");
    if (length == 0 || digits[length] != '\0' || (digits[0] == '0' && length > 1))
        return -1;
    errno = 0;
    long long number = strtoll(value, NULL, 10);
    if (errno != 0 || number < field->minimum || number > field->maximum)
        return -1;
    *(int64_t *)((char *)entry + field->offset) = number;
    return 0;
}

int key_entry_set(struct key_entry *entry, int index, const char *value,
                  char what[KEY_WHAT_BYTES]) {
    const struct key_field *field = &fields[index];
    int status = field->set != NULL ? field->set(entry, value) : set_number(entry, field, value);
    if (status == -2)
        snprintf(what, KEY_WHAT_BYTES, "not enough memory for %s", field->name);
    else if (status != 0 && field->set != NULL)
        snprintf(what, KEY_WHAT_BYTES, "%s must be %s", field->name, field->allowed);
    else if (status != 0)
        snprintf(what, KEY_WHAT_BYTES, "%s must be a whole number from %lld to %lld", field->name,
                 (long long)field->minimum, (long long)field->maximum);
    entry->given |= UINT32_C(1) << index;
    return status == 0 ? 0 : -1;
}

static bool is_given(const struct key_entry *entry, const char *name) {
    return (entry->given >> key_field_find(name, strlen(name)) & 1) != 0;
}

int key_entry_check(const struct key_entry *entry, char what[KEY_WHAT_BYTES]) {
    if (!is_given(entry, "name"))
        snprintf(what, KEY_WHAT_BYTES, "name is missing");
    else if (!is_given(entry, "hash"))
        snprintf(what, KEY_WHAT_BYTES, "hash is missing");
    else if (entry->min_priority > entry->max_priority)
        snprintf(what, KEY_WHAT_BYTES, "min-priority is larger than max-priority");
    else
        return 0;
    return -1;
}

void key_hash_format(const struct auth_hash *hash, char out[KEY_HASH_TEXT_BYTES]) {
    char *digit = out + sprintf(out, HASH_PREFIX);
    for (int i = 0; i < AUTH_HASH_BYTES; i++)
        digit += sprintf(digit, "%02x", hash->bytes[i]);
}
