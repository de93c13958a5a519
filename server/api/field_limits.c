#include "server/api/field_limits.h"

#include "server/json/json_field.h"

#include <stdio.h>
#include <string.h>

#define NUM_LIMITS 2

struct limit {
    const char *field, *option;
    int64_t max;
};

static void list_limits(const struct api_context *context, struct limit out[NUM_LIMITS]) {
    out[0] = (struct limit){"n", "--max-n", context->max_n};
    out[1] = (struct limit){"best_of", "--max-n", context->max_n};
}

double field_limits_max(const struct api_context *context, const char *name, double otherwise) {
    struct limit limits[NUM_LIMITS];
    list_limits(context, limits);
    for (int i = 0; i < NUM_LIMITS; i++)
        if (strcmp(limits[i].field, name) == 0)
            return (double)limits[i].max;
    return otherwise;
}

static int refuse(const cJSON *item, const struct limit *limit, struct api_error *err) {
    char allowed[64];
    snprintf(allowed, sizeof(allowed), "at most %lld (%s)", (long long)limit->max, limit->option);
    json_refuse(item, limit->field, allowed, err);
    err->code = "out_of_range";
    return -1;
}

int field_limits_check(const struct api_context *context, const cJSON *json,
                       struct api_error *err) {
    struct limit limits[NUM_LIMITS];
    list_limits(context, limits);
    for (int i = 0; i < NUM_LIMITS; i++) {
        const cJSON *item = json_given_member(json, limits[i].field);
        if (cJSON_IsNumber(item) && item->valuedouble > (double)limits[i].max)
            return refuse(item, &limits[i], err);
    }
    return 0;
}
