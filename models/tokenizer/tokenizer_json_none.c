/* Stands in for tokenizer_json.c where libcjson is missing. */
#include "models/tokenizer/tokenizer_spec.h"

int tokenizer_spec_read_json(const char *folder, struct tokenizer_spec *out, struct error *err) {
    return error_set(err, ERROR_MODEL,
                     "%s: this program was built without libcjson, which reads tokenizer.json",
                     folder);
}
