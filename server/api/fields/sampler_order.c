#include "server/api/fields/sampler_order.h"

#include "config/json/json_field.h"

#include <string.h>

#define ORDER "dry, penalties, top_n_sigma, temperature, min_p, top_k, top_p, typ_p, xtc"

int sampler_order_check(const cJSON *json, struct api_error *err) {
    static const char *const order[] = {"dry",   "penalties", "top_n_sigma", "temperature", "min_p",
                                        "top_k", "top_p",     "typ_p",       "xtc"};
    const int num_steps = sizeof(order) / sizeof(order[0]);
    const cJSON *samplers = json_given_member(json, "samplers"), *item;
    if (samplers == NULL)
        return 0;
    if (!cJSON_IsArray(samplers))
        return json_refuse(samplers, "samplers", "an array of strings", err);
    int count = cJSON_GetArraySize(samplers), i = 0;
    bool is_ours = count == 0 || count == num_steps;
    cJSON_ArrayForEach(item, samplers) {
        is_ours = is_ours && cJSON_IsString(item) && strcmp(item->valuestring, order[i]) == 0;
        i++;
    }
    if (is_ours)
        return 0;
    return bad_request(
        err, "unsupported_value", "samplers",
        "samplers must be left out or be the order in which this server applies them: " ORDER);
}
