/* Private to models/: GGUF files, whole or split as llama.cpp's gguf-split does.
 *
 * Parts are named NAME-00001-of-00003.gguf and so on, and lie beside each other. Each is a GGUF
 * file of its own with the keys split.no (from 0), split.count and split.tensors.count (of all
 * parts together); the first holds the model's metadata. A file with a count of 0, which parts
 * merged again have, or 1 is whole. (Source: llama.cpp, tools/gguf-split.) */
#ifndef QUIRE_MODELS_FILES_GGUF_SPLIT_H
#define QUIRE_MODELS_FILES_GGUF_SPLIT_H

#include "models/files/tensor_parts.h"

/* Opens the parts that part 0, which is open and parsed, names; checks that they belong together,
 * and joins them. */
int gguf_split_open_rest(struct tensor_file *file, struct error *err);

#endif
