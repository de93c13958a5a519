#include "server/api/fields/field_limits.h"

#include "config/base/check.h"

#include <string.h>

struct limit {
    const char *field, *option;
    int64_t min, max;
};

struct json_field field_limits_bind(const struct api_context *context,
                                    const struct json_field *field) {
    const int64_t min = context->allows_all_logprobs ? -1 : 0, max = context->max_logprobs;
    const struct limit limits[] = {
        {"n", "--max-n", 1, context->max_n},
        {"best_of", "--max-n", 1, context->max_n},
        {"logprobs", "--max-logprobs", min, max},
        {"top_logprobs", "--max-logprobs", min, max},
        {"prompt_logprobs", "--max-logprobs", min, max},
    };
    struct json_field bound = *field;
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        if (field->kind != JSON_FIELD_INT || strcmp(limits[i].field, field->name) != 0)
            continue;
        bound.min = (double)limits[i].min;
        bound.max = (double)limits[i].max;
        bound.max_option = limits[i].option;
    }
    return bound;
}

int field_limits_read(const struct api_context *context, const cJSON *json, struct json_table table,
                      void *target, struct api_error *err) {
    struct json_field fields[FIELD_LIMITS_MAX_FIELDS];
    CHECK(table.num_fields <= FIELD_LIMITS_MAX_FIELDS);
    for (int i = 0; i < table.num_fields; i++)
        fields[i] = field_limits_bind(context, &table.fields[i]);
    table.fields = fields;
    return json_fields_read(json, table, target, err);
}

int64_t field_limits_logprobs(const struct api_context *context, int64_t value) {
    return value < 0 ? context->max_logprobs : value;
}
