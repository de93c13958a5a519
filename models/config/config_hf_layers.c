/* Decides which layers of a Hugging Face folder's model see only a window, and which have no RoPE:
 * listed layer by layer, or by a rule of the family. */
#include "models/config/config_hf.h"

#include "config/base/utf8.h"

#include <string.h>

/* Reads the window of the layers that have one; 0: no layer has. */
static int read_window(const struct config_object *o, const struct architecture *architecture,
                       int32_t *out) {
    static const char key[] = "sliding_window";
    enum window_rule rule = architecture->window_rule;
    bool used = rule != WINDOW_FROM_LAYER && rule != WINDOW_WITHOUT_ROPE;
    *out = config_field_is_null(o, key) ? 0 : architecture->defaults.window;
    if (config_field_bool(o, "use_sliding_window", &used) != 0 ||
        config_field_int(o, key, 0, INT32_MAX, out) != 0)
        return -1;
    if (!used)
        *out = 0;
    return 0;
}

/* Reads which layers use RoPE (1 in the list). A list may be longer than there are layers. */
static int read_rotating(const struct config_object *o, const struct architecture *architecture,
                         int32_t num_layers, bool *rotates) {
    static const char key[] = "no_rope_layers";
    int32_t interval = architecture->nope_interval, i = 0;
    const cJSON *list, *item;
    if (config_field_array(o, key, &list) != 0)
        return -1;
    if (interval == 0 && list != NULL)
        return config_field_refuse(o, key, "is not supported for this architecture");
    if (interval != 0 &&
        config_field_int(o, "no_rope_layer_interval", 1, MODEL_MAX_LAYERS, &interval) != 0)
        return -1;
    for (int32_t layer = 0; layer < num_layers; layer++)
        rotates[layer] = interval == 0 || (layer + 1) % interval != 0;
    if (list == NULL)
        return 0;
    cJSON_ArrayForEach(item, list) {
        if (!config_field_is_int(item, 0, 1))
            return config_field_refuse(o, key, "element %d is neither 0 nor 1", i);
        if (i < num_layers)
            rotates[i] = item->valuedouble != 0.0;
        if (i < MODEL_MAX_LAYERS)
            i++;
    }
    if (i < num_layers)
        return config_field_refuse(o, key, "has %d elements, and there are %d layers", i,
                                   num_layers);
    return 0;
}

/* Decides by the family's rule. */
static int apply_rule(const struct config_object *o, const struct architecture *architecture,
                      int32_t num_layers, const bool *rotates, bool *windowed) {
    struct architecture rule = *architecture;
    int32_t first = 28; /* Transformers' default of max_window_layers */
    if (config_field_int(o, "max_window_layers", 0, INT32_MAX, &first) != 0)
        return -1;
    if (rule.window_rule == WINDOW_PERIODIC &&
        config_field_int(o, "sliding_window_pattern", 1, MODEL_MAX_LAYERS, &rule.window_period) !=
            0)
        return -1;
    for (int32_t i = 0; i < num_layers; i++) {
        windowed[i] = model_config_is_windowed(&rule, i);
        if (rule.window_rule == WINDOW_FROM_LAYER)
            windowed[i] = i >= first;
        if (rule.window_rule == WINDOW_WITHOUT_ROPE)
            windowed[i] = !rotates[i];
    }
    return 0;
}

static int read_list(const struct config_object *o, const cJSON *list, int32_t num_layers,
                     bool *windowed) {
    static const char key[] = "layer_types";
    char shown[UTF8_PRINTABLE_BYTES];
    const cJSON *item;
    int32_t i = 0;
    cJSON_ArrayForEach(item, list) {
        const char *type = cJSON_IsString(item) ? item->valuestring : "";
        utf8_printable((struct text){type, strlen(type)}, shown);
        if (i == num_layers)
            return config_field_refuse(o, key, "has more elements than there are layers, %d",
                                       num_layers);
        windowed[i++] = strcmp(type, "sliding_attention") == 0;
        if (!windowed[i - 1] && strcmp(type, "full_attention") != 0)
            return config_field_refuse(
                o, key, "'%s' is not supported (supported: full_attention, sliding_attention)",
                shown);
    }
    if (i < num_layers)
        return config_field_refuse(o, key, "has %d elements, and there are %d layers", i,
                                   num_layers);
    return 0;
}

/* The classes of some families in Transformers know no list of layers. It is not followed here
 * either, and must make no difference: to contexts within the window there is none. */
static int check_list(const struct config_object *o, const struct architecture *architecture,
                      const struct model_config *config, int32_t window, bool *windowed) {
    bool all = architecture->window_rule == WINDOW_ALL_LAYERS;
    if ((!all && architecture->window_rule != WINDOW_NEVER) || window == 0)
        return 0;
    for (int32_t i = 0; i < config->num_layers; i++) {
        if (windowed[i] != all && window < config->max_position)
            return config_field_refuse(o, "layer_types",
                                       "layers of different kinds are not supported for this "
                                       "architecture");
        windowed[i] = all;
    }
    return 0;
}

int config_hf_read_layers(const struct config_object *o, const struct architecture *architecture,
                          struct model_config *out) {
    bool windowed[MODEL_MAX_LAYERS] = {0}, rotates[MODEL_MAX_LAYERS];
    int32_t window;
    const cJSON *list;
    if (read_window(o, architecture, &window) != 0 ||
        read_rotating(o, architecture, out->num_layers, rotates) != 0 ||
        config_field_array(o, "layer_types", &list) != 0)
        return -1;
    if (list == NULL) {
        if (apply_rule(o, architecture, out->num_layers, rotates, windowed) != 0)
            return -1;
    } else if (read_list(o, list, out->num_layers, windowed) != 0 ||
               check_list(o, architecture, out, window, windowed) != 0) {
        return -1;
    }
    for (int32_t i = 0; i < out->num_layers; i++)
        out->layers[i].window = windowed[i] ? window : 0;
    model_config_set_layer_ropes(out, architecture, rotates);
    return 0;
}
