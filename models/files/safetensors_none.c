/* Stands in for safetensors.c where libcjson is missing. */
#include "models/files/safetensors.h"

bool safetensors_matches(struct file_image *image) {
    return false;
}

int safetensors_parse(struct file_image *image, struct tensor_table *out, struct error *err) {
    return error_set(err, ERROR_MODEL,
                     "%s: this program was built without libcjson, which reads "
                     "safetensors",
                     image->name);
}

int safetensors_open_folder(struct tensor_file *file, struct error *err) {
    return error_set(err, ERROR_MODEL,
                     "%s: is a directory; this program was built without libcjson and reads GGUF "
                     "files only",
                     file->path);
}
