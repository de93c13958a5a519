/* Turns a model into a GGUF file with weights of other types: what `quire quantize` does. The
 * source is a Hugging Face folder or a GGUF file; the new file has what llama.cpp's converter and
 * its llama-quantize would write.
 *
 * A conversion is planned when it is opened: every tensor with its type, and the metadata. Writing
 * first checks that the GGUF format can say all that a folder says. It reads, converts and writes a
 * part of a tensor at a time, so it takes little memory for any model. One thread calls it; several
 * compute. */
#ifndef QUIRE_MODELS_CONVERT_CONVERSION_H
#define QUIRE_MODELS_CONVERT_CONVERSION_H

#include "models/convert/quant_mixture.h"
#include "models/files/tensor_file.h"

#include <stdbool.h>
#include <stdint.h>

#define CONVERSION_MAX_OVERRIDES 64

/* A type for all tensors whose names a regular expression matches somewhere. */
struct tensor_override {
    const char *pattern;
    enum dtype dtype;
};

struct conversion_settings {
    struct mixture_options types;
    int num_overrides;
    struct tensor_override overrides[CONVERSION_MAX_OVERRIDES]; /* the first that matches counts */
    const char *imatrix_path;                                   /* NULL: none */
    bool allow_requantize; /* of tensors that are quantised in the source */
};

/* A tensor of the new file. */
struct converted_tensor {
    char name[64 + 1];
    struct tensor_info info; /* as in the new file; its name points to the one above */
    enum dtype from;
};

struct conversion;

/* Opens the source and plans. The settings and their texts outlive the conversion. ERROR_MODEL for
 * a source that cannot be converted, by name; ERROR_CONFIG for settings; ERROR_IO, ERROR_MEMORY. */
int conversion_open(const char *path, const struct conversion_settings *settings,
                    struct conversion **out, struct error *err);
/* Accepts NULL. */
void conversion_close(struct conversion *conversion);

size_t conversion_num_tensors(const struct conversion *conversion);
const struct converted_tensor *conversion_tensor(const struct conversion *conversion, size_t i);
/* Tensors that got another type than the rules', because their rows are not whole blocks. */
int conversion_num_fallbacks(const struct conversion *conversion);
uint64_t conversion_bytes_from(const struct conversion *conversion); /* of the source's tensors */
uint64_t conversion_bytes_to(const struct conversion *conversion);   /* of the new file */
uint64_t conversion_num_weights(const struct conversion *conversion);

/* Sees how far writing is. */
struct conversion_watcher {
    /* Called after each part; bytes of the source's tensors. True: stop. */
    bool (*advanced)(void *context, uint64_t bytes_done, uint64_t num_bytes);
    void *context;
};

/* Writes the file to out_path, by another name next to it until it is whole; what is there is
 * replaced. num_threads 0: one for each core. ERROR_INTERRUPTED if the watcher stopped it,
 * ERROR_MODEL for values that a type cannot hold, ERROR_IO (no space, ...); nothing is left then.
 */
int conversion_write(struct conversion *conversion, const char *out_path, int num_threads,
                     const struct conversion_watcher *watcher, struct error *err);

#endif
