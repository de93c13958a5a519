#include "models/config/metadata_field.h"

#include "config/base/utf8.h"

#include <inttypes.h>
#include <stdio.h>

static const char *full_key(const struct metadata_source *s, const char *key, char *buffer) {
    if (key[0] != '.')
        return key;
    snprintf(buffer, METADATA_MAX_KEY, "%s%s", s->architecture, key);
    return buffer;
}

const struct metadata *metadata_field_find(const struct metadata_source *s, const char *key) {
    char buffer[METADATA_MAX_KEY];
    return tensor_file_find_metadata(s->file, full_key(s, key, buffer));
}

int metadata_field_refuse(const struct metadata_source *s, const char *key, const char *reason) {
    char buffer[METADATA_MAX_KEY];
    return error_set(s->err, ERROR_MODEL, "%s: %s: %s", tensor_file_path(s->file),
                     full_key(s, key, buffer), reason);
}

int metadata_field_require(const struct metadata_source *s, const char *key) {
    return metadata_field_find(s, key) != NULL ? 0 : metadata_field_refuse(s, key, "is missing");
}

static int refuse_range(const struct metadata_source *s, const char *key,
                        const struct metadata *entry, int64_t min, int64_t max) {
    char buffer[METADATA_MAX_KEY], shown[24];
    if (entry->type == METADATA_INT)
        snprintf(shown, sizeof(shown), "%" PRId64, entry->as_int);
    else
        snprintf(shown, sizeof(shown), "%" PRIu64, entry->as_uint);
    return error_set(s->err, ERROR_MODEL, "%s: %s: %s (allowed: %" PRId64 " to %" PRId64 ")",
                     tensor_file_path(s->file), full_key(s, key, buffer), shown, min, max);
}

int metadata_field_int(const struct metadata_source *s, const char *key, int64_t min, int64_t max,
                       int32_t *out) {
    const struct metadata *entry = metadata_field_find(s, key);
    if (entry == NULL)
        return 0;
    if (entry->type != METADATA_UINT && entry->type != METADATA_INT)
        return metadata_field_refuse(s, key, "is not an integer");
    if (entry->type == METADATA_INT && (entry->as_int < min || entry->as_int > max))
        return refuse_range(s, key, entry, min, max);
    if (entry->type == METADATA_UINT &&
        (entry->as_uint > (uint64_t)max || (min > 0 && entry->as_uint < (uint64_t)min)))
        return refuse_range(s, key, entry, min, max);
    *out = entry->type == METADATA_INT ? (int32_t)entry->as_int : (int32_t)entry->as_uint;
    return 0;
}

int metadata_field_float(const struct metadata_source *s, const char *key, double min, double max,
                         float *out) {
    const struct metadata *entry = metadata_field_find(s, key);
    if (entry == NULL)
        return 0;
    if (entry->type != METADATA_FLOAT)
        return metadata_field_refuse(s, key, "is not a floating point number");
    if (entry->as_float >= min && entry->as_float <= max) { /* not so for NaN */
        *out = (float)entry->as_float;
        return 0;
    }
    char buffer[METADATA_MAX_KEY];
    return error_set(s->err, ERROR_MODEL, "%s: %s: %g (allowed: %g to %g)",
                     tensor_file_path(s->file), full_key(s, key, buffer), entry->as_float, min,
                     max);
}

void metadata_field_copy(struct text text, char *out, size_t capacity) {
    size_t length = text.length < capacity - 1 ? text.length : capacity - 1;
    if (length < text.length)
        while (length > 0 && utf8_continues(text.data[length]))
            length--;
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text.data[i];
        out[i] = c < 0x20 || c == 0x7f ? '?' : (char)c;
    }
    out[length] = '\0';
}
