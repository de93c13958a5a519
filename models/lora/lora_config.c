/* The settings of a PEFT folder (peft/tuners/lora/config.py). */
#include "models/config/config_field.h"
#include "models/files/json_file.h"
#include "models/lora/lora_adapter_private.h"

#include "config/base/utf8.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define MAX_CONFIG_BYTES ((size_t)1 << 20)

static int refuse(const struct config_object *o, const char *key) {
    return config_field_refuse(o, key, "is not supported");
}

/* What would change results and is not computed: an empty value is as good as none. */
static int check_absent(const struct config_object *o) {
    static const char *const keys[] = {
        "modules_to_save",   "alpha_pattern", "layer_replication",       "trainable_token_indices",
        "target_parameters", "arrow_config",  "alora_invocation_tokens", "kasa_config",
        "monteclora_config", "use_bdlora"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        const cJSON *value = config_field_find(o, keys[i]);
        bool is_container = cJSON_IsArray(value) || cJSON_IsObject(value);
        if (value != NULL && !cJSON_IsFalse(value) && !(is_container && value->child == NULL))
            return refuse(o, keys[i]);
    }
    return 0;
}

/* These ways to begin a training take what the adapter begins with out of the base model. PEFT
 * writes true once it has converted such an adapter for the unchanged model. */
static int check_start(const struct config_object *o) {
    static const char *const starts[] = {"pissa", "corda", "olora", "loftq", "lora_ga"};
    const char *key = "init_lora_weights", *value = NULL;
    char shown[UTF8_PRINTABLE_BYTES];
    if (!cJSON_IsString(config_field_find(o, key)))
        return 0;
    if (config_field_string(o, key, &value) != 0)
        return -1;
    for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++)
        if (strncasecmp(value, starts[i], strlen(starts[i])) == 0) {
            utf8_printable((struct text){value, strlen(value)}, shown);
            return config_field_refuse(
                o, key, "'%s' changes the base model, which is not supported", shown);
        }
    return 0;
}

static int check_flags(const struct config_object *o) {
    static const char *const keys[] = {"use_dora", "lora_bias", "use_qalora"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        bool on = false;
        if (config_field_bool(o, keys[i], &on) != 0)
            return -1;
        if (on)
            return refuse(o, keys[i]);
    }
    return 0;
}

static int check_word(const struct config_object *o, const char *key, const char *allowed) {
    const char *value = NULL;
    char shown[UTF8_PRINTABLE_BYTES];
    if (config_field_string(o, key, &value) != 0)
        return -1;
    if (value == NULL || strcasecmp(value, allowed) == 0)
        return 0;
    utf8_printable((struct text){value, strlen(value)}, shown);
    return config_field_refuse(o, key, "'%s' is not supported (supported: %s)", shown, allowed);
}

static int read_settings(const struct config_object *o, struct lora_settings *out) {
    if (config_field_require(o, "peft_type") != 0 || check_word(o, "peft_type", "LORA") != 0 ||
        check_word(o, "bias", "none") != 0 || check_flags(o) != 0 || check_absent(o) != 0 ||
        check_start(o) != 0 || config_field_require(o, "lora_alpha") != 0)
        return -1;
    return config_field_float(o, "lora_alpha", 1e-6, 1e6, &out->alpha) != 0 ||
                   config_field_bool(o, "use_rslora", &out->square_root) != 0
               ? -1
               : 0;
}

int lora_read_settings(const char *folder, struct lora_settings *out, struct error *err) {
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/adapter_config.json", folder);
    cJSON *root = json_file_read(path, MAX_CONFIG_BYTES, err);
    if (root == NULL)
        return -1;
    const struct config_object object = {.json = root, .file = path, .err = err};
    int status = read_settings(&object, out);
    cJSON_Delete(root);
    return status;
}
