/* A build without cJSON reads no folders. */
#include "models/lora/lora_adapter_private.h"

int lora_read_settings(const char *folder, struct lora_settings *out, struct error *err) {
    return error_set(err, ERROR_CONFIG, "%s: this program was built without support for folders",
                     folder);
}
