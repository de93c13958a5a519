/* Private to models/: the pre-tokenizers that GGUF files name in `tokenizer.ggml.pre`, written as
 * the steps of the models' tokenizer.json files. */
#ifndef QUIRE_MODELS_TOKENIZER_PRETOKENIZER_PRESETS_H
#define QUIRE_MODELS_TOKENIZER_PRETOKENIZER_PRESETS_H

#include "config/base/error.h"
#include "models/tokenizer/tokenizer_spec.h"

#define PRETOKENIZER_MAX_NAMES 10

struct pretokenizer_preset {
    const char *names[PRETOKENIZER_MAX_NAMES]; /* the first is the one shown */
    struct pretokenizer_step steps[TOKENIZER_MAX_STEPS];
    int num_steps;
    /* Related settings of tokenizer.json that a GGUF file does not contain. */
    bool nfc;           /* text is put into normal form C */
    bool ignore_merges; /* see struct tokenizer_spec */
    bool adds_bos;      /* prompts start with bos if the file does not say */
};

/* Finds a preset; ERROR_MODEL for an unknown name, listing the known ones. */
int pretokenizer_preset_find(struct text name, const struct pretokenizer_preset **out,
                             struct error *err);

/* Returns the preset that splits texts like the steps of spec, of a byte-level vocabulary, with the
 * same related settings; NULL: none does. */
const struct pretokenizer_preset *pretokenizer_preset_like(const struct tokenizer_spec *spec);

/* Returns whether a regex is one of these, or another one of a known model. All of them are known
 * to take linear time and never to match the empty text. */
bool pretokenizer_presets_have(struct text pattern);

#endif
