#include "server/output/parameter_types.h"

static void append_word(struct byte_buffer *types, const char *word) {
    byte_buffer_append(types, word, strlen(word) + 1);
}

void parameter_types_begin(struct byte_buffer *types, const char *function) {
    append_word(types, function);
}

void parameter_types_add(struct byte_buffer *types, enum parameter_type type, const char *name) {
    const char letter = (char)type;
    byte_buffer_append(types, &letter, 1);
    append_word(types, name);
}

void parameter_types_end(struct byte_buffer *types) {
    byte_buffer_append(types, "", 1);
}

static bool is_word(const char *word, const char *name, size_t length) {
    return strlen(word) == length && memcmp(word, name, length) == 0;
}

static const char *behind(const char *word) {
    return word + strlen(word) + 1;
}

const char *parameter_types_find(struct text types, const char *function, size_t length) {
    const char *at = types.data, *end = at + types.length;
    while (types.length > 0 && at < end) {
        bool is_found = is_word(at, function, length);
        at = behind(at);
        if (is_found)
            return at;
        while (*at != '\0')
            at = behind(at);
        at++;
    }
    return NULL;
}

enum parameter_type parameter_types_of(const char *parameters, const char *name, size_t length) {
    for (const char *at = parameters; at != NULL && *at != '\0'; at = behind(at))
        if (is_word(at + 1, name, length))
            return (enum parameter_type) * at;
    return PARAMETER_ANY;
}
