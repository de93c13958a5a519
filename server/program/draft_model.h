/* The draft model of --speculative-config: a second, smaller model that proposes tokens for the
 * first to check. Both must have the same vocabulary, because a draft is a token's number. With
 * method "mtp" it is a layer of the first (models/config/mtp.h), from the same files. */
#ifndef QUIRE_SERVER_PROGRAM_DRAFT_MODEL_H
#define QUIRE_SERVER_PROGRAM_DRAFT_MODEL_H

#include "config/options.h"
#include "engine/executor/executor.h"
#include "models/config/model.h"
#include "models/tokenizer/tokenizer.h"
#include "server/program/engine_options.h"

struct draft_model {
    struct speculative_config config; /* its model is a path, or "": there is none; with is_mtp that
                                         of the served model */
    struct model *model;              /* NULL: none */
};

/* Opens the draft model of the options, if they name one; it must be a file or a folder. target:
 * the model that checks the drafts. ERROR_CONFIG, ERROR_MODEL or ERROR_MEMORY, with the option's
 * name. The caller closes *out, also on failure. */
int draft_model_open(const struct options *options, const struct model *target,
                     struct draft_model *out, struct error *err);
/* Compares vocabularies: the tokens that both have must be equal, and further ones unused, as a
 * vocabulary is padded with. ERROR_CONFIG names the first token that differs, and the draft model
 * by its path. */
int draft_model_compare(const char *path, const struct tokenizer *draft,
                        const struct tokenizer *target, struct error *err);
/* Compares its vocabulary, whose tokenizer is opened for that, with that of the target. Accepts
 * that there is no draft model. */
int draft_model_check(const struct draft_model *draft, const struct tokenizer *target,
                      struct error *err);
/* Sets what the executor needs of it, if there is one. */
void draft_model_use(const struct draft_model *draft, struct executor_config *config);
/* Returns its path; NULL: there is none. */
const char *draft_model_path(const struct draft_model *draft);
/* Accepts a zeroed one. */
void draft_model_close(struct draft_model *draft);

#endif
