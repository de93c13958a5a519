#include "models/config/sampling_fields.h"

#include <math.h>

#define FIELD(member, kind, low, usable, high, key)                                                \
    {.name = #member,                                                                              \
     .gguf_key = key,                                                                              \
     .type = SAMPLING_FIELD_##kind,                                                                \
     .offset = offsetof(struct sampling_settings, member),                                         \
     .least = (usable),                                                                            \
     .max = (high)},

static const struct sampling_field fields[] = {FOR_SAMPLING_FIELDS(FIELD)};

#define NUM_FIELDS ((int)(sizeof(fields) / sizeof(fields[0])))

const struct sampling_field *sampling_fields(int *out_count) {
    *out_count = NUM_FIELDS;
    return fields;
}

double sampling_field_value(const struct sampling_field *field,
                            const struct sampling_settings *settings) {
    const char *at = (const char *)settings + field->offset;
    return field->type == SAMPLING_FIELD_INT32 ? *(const int32_t *)at : (double)*(const float *)at;
}

void sampling_fields_clear(struct sampling_settings *settings) {
    for (int i = 0; i < NUM_FIELDS; i++) {
        void *at = sampling_field_at(&fields[i], settings);
        if (fields[i].type == SAMPLING_FIELD_INT32)
            *(int32_t *)at = -1;
        else
            *(float *)at = NAN;
    }
}

bool sampling_field_is_absent(const struct sampling_field *field,
                              const struct sampling_settings *settings) {
    double value = sampling_field_value(field, settings);
    return field->type == SAMPLING_FIELD_INT32 ? value < 0 : isnan(value);
}

void sampling_fields_merge(const struct sampling_settings *from, struct sampling_settings *to) {
    for (int i = 0; i < NUM_FIELDS; i++) {
        if (sampling_field_is_absent(&fields[i], from))
            continue;
        double value = sampling_field_value(&fields[i], from);
        void *at = sampling_field_at(&fields[i], to);
        if (fields[i].type == SAMPLING_FIELD_INT32)
            *(int32_t *)at = (int32_t)value;
        else
            *(float *)at = (float)value;
    }
}

bool sampling_fields_recommend(const struct sampling_settings *settings) {
    for (int i = 0; i < NUM_FIELDS; i++)
        if (!sampling_field_is_absent(&fields[i], settings))
            return true;
    return false;
}

struct sampling_settings sampling_fields_defaults(const struct sampling_settings *recommended) {
    struct sampling_settings settings = SAMPLING_SETTINGS_NEUTRAL;
    if (sampling_fields_recommend(recommended)) {
        sampling_fields_merge(recommended, &settings);
        return settings;
    }
    settings.temperature = 0.8F;
    settings.top_k = 40;
    settings.top_p = 0.95F;
    settings.min_p = 0.05F;
    return settings;
}
