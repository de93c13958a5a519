/* The head of a model that classifies texts: a matrix of the last token's hidden state, after the
 * output norm, gives one number for each label. It is small, so it is float, on the host, and not
 * part of a step.
 *
 * Folders name it `score` (Transformers' ForSequenceClassification), GGUF files `cls.output`. A
 * language model that answers a question with one of two words is such a model too: its head's rows
 * of the two words are the matrix (Qwen3-Reranker: "no" and "yes").
 *
 * Immutable once it is read. */
#ifndef QUIRE_MODELS_CONFIG_CLASSIFIER_H
#define QUIRE_MODELS_CONFIG_CLASSIFIER_H

#include "config/base/error.h"
#include "config/base/text.h"

#include <stdbool.h>
#include <stdint.h>

#define CLASSIFIER_MAX_LABELS 4096
#define CLASSIFIER_MAX_LABEL_BYTES 255
#define CLASSIFIER_MAX_NUMBERS (1 << 24) /* of the matrix: 64 MiB */

struct model;

/* What makes a score of a row's number. */
enum classifier_activation {
    CLASSIFIER_BY_COUNT, /* softmax, or sigmoid of one label */
    CLASSIFIER_IDENTITY,
    CLASSIFIER_SIGMOID,
};

struct classifier {
    int32_t num_labels; /* 0: the model does not classify */
    int32_t hidden_size;
    enum classifier_activation activation;
    /* One label, whose number is that of the first row less that of the second: its sigmoid is the
     * softmax of both. */
    bool is_contrast;
    float *rows;           /* owned: [num_labels, or 2, hidden_size] */
    float *bias;           /* owned: one for each row; NULL: none */
    float scale, soft_cap; /* of the rows' numbers; 1 and 0: none */
    char **labels;         /* owned: [num_labels]; NULL: LABEL_0, LABEL_1, ... */
};

/* Reads the matrix of a model whose file has one; the activation and labels that the settings state
 * are set already, num_labels as they state it (0: they do not). Refuses other shapes, types that
 * are not read, and numbers that are not finite. */
int classifier_read(struct model *model, struct error *err);

/* Makes a classifier of the model's head: of one token, or of two, of which the second stands for
 * the label (vLLM's classifier_from_token). Replaces one that was made so. label: its name; NULL:
 * none. */
int classifier_from_tokens(struct model *model, const int32_t *tokens, int num_tokens,
                           const char *label, struct error *err);

/* Returns whether a label is valid UTF-8 of 1 to CLASSIFIER_MAX_LABEL_BYTES bytes, without NUL. */
bool classifier_is_label(struct text label);
/* Sets the label of that index, of num_labels. */
int classifier_set_label(struct classifier *classifier, int32_t index, struct text label,
                         struct error *err);
void classifier_finish(struct classifier *classifier);

/* Writes a label's name. */
void classifier_label(const struct classifier *classifier, int32_t index,
                      char out[static CLASSIFIER_MAX_LABEL_BYTES + 1]);

/* Computes the scores [num_labels] of a hidden state [hidden_size], in double and in order, so that
 * the same state gives the same bits. activate false: the numbers that scores are made of. */
void classifier_scores(const struct classifier *classifier, const float *hidden, bool activate,
                       float *out);

#endif
