/* Any bytes as a safetensors file: parsed, and every tensor read. What is accepted keeps the
 * format's promise that each byte behind the header belongs to exactly one tensor. */
#include "tests/fuzz/tensor_touch.h"

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_cover(const struct tensor_file *file, size_t data_bytes) {
    size_t covered = 0;
    for (size_t i = 0; i < tensor_file_num_tensors(file); i++)
        covered += tensor_file_tensor(file, i)->bytes;
    if (covered != data_bytes)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct tensor_file *file;
    struct error err = {0};
    if (bytes >= 4 && memcmp(data, "GGUF", 4) == 0)
        return 0;
    if (tensor_file_open_memory(data, bytes, "fuzz", &file, &err) != 0) {
        check_refusal(&err, "fuzz");
        return 0;
    }
    uint64_t header_bytes;
    memcpy(&header_bytes, data, sizeof(header_bytes));
    check_cover(file, bytes - sizeof(header_bytes) - (size_t)header_bytes);
    touch_tensors(file);
    tensor_file_close(file);
    return 0;
}
