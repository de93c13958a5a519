/* Private to models/: safetensors files, and the Hugging Face folders that hold them.
 *
 *   u64 length, little-endian | length bytes of JSON | the tensors' data
 *   JSON: { "__metadata__": { text: text }, NAME: { "dtype": "BF16", "shape": [rows, cols],
 *           "data_offsets": [begin, end] } }, offsets counted from the first byte after the JSON
 *
 * (Source: huggingface/safetensors, README.md "Format".) The rules of the format are checked in
 * full: at most 100 MB of header, which begins with '{', strict JSON without a key twice; sizes
 * that agree with shape and type; tensors that follow each other without gap or overlap and cover
 * the rest of the file to its last byte.
 *
 * A folder holds model.safetensors, or model.safetensors.index.json, whose weight_map says which
 * tensor is in which shard. A shard may hold tensors that the map does not name and lack some that
 * it names, but no tensor may be in a shard other than the one in the map. */
#ifndef QUIRE_MODELS_FILES_SAFETENSORS_H
#define QUIRE_MODELS_FILES_SAFETENSORS_H

#include "models/files/tensor_parts.h"

#include <stdbool.h>

/* Reads the first bytes and returns whether they look like such a file: '{' after eight bytes. */
bool safetensors_matches(struct file_image *image);

int safetensors_parse(struct file_image *image, struct tensor_table *out, struct error *err);

/* Opens the weights of the folder file->path as the parts of file. */
int safetensors_open_folder(struct tensor_file *file, struct error *err);

#endif
