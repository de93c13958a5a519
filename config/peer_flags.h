/* Private to config/: the flags of vLLM's `vllm serve` and of llama.cpp's llama-server, and what
 * becomes of each here. The command line is read with this table, docs/migrating.md is generated
 * from it, and a name that is unknown is explained by it. */
#ifndef QUIRE_CONFIG_PEER_FLAGS_H
#define QUIRE_CONFIG_PEER_FLAGS_H

#include <stdbool.h>
#include <stddef.h>

enum peer {
    PEER_VLLM = 1,
    PEER_LLAMA = 2,
    PEER_OTHER = 4, /* Ollama's, SGLang's and TGI's names: only to explain what is unknown */
};

enum peer_takes {
    PEER_NOTHING, /* a switch */
    PEER_MAYBE,   /* a switch that "on", "off", "true", "auto" and the like may follow */
    PEER_VALUE,
    PEER_MANY, /* all words up to the next flag */
};

enum peer_kind {
    PEER_SAME,     /* sets our option */
    PEER_TAKEN,    /* asks for what is so anyway: changes nothing */
    PEER_NEEDLESS, /* refused: what it tunes does not exist here */
    PEER_NONE,     /* refused */
};

struct peer_flag {
    const char *names; /* separated by spaces, with their dashes; or names of variables */
    int peers;         /* enum peer */
    enum peer_takes takes;
    enum peer_kind kind;
    const char *option; /* SAME: the option it sets, NONE: what to use instead, without dashes */
    /* "GIVEN=OURS" separated by spaces: values that our option calls otherwise; "*" is any other
     * value. If OURS is empty, this value changes nothing and is taken; a TAKEN flag that has
     * values takes only these. */
    const char *values;
    const char *remark; /* one phrase for messages and docs/migrating.md, or NULL */
};

/* Returns all entries, in the order of the pages, and their number in *out_count. */
const struct peer_flag *peer_flags(size_t *out_count);

/* Returns the entry with this flag, dashes included, `-` and `_` alike; NULL if there is none.
 * Those of PEER_OTHER come last. */
const struct peer_flag *peer_flag_find(const char *name, size_t length);

/* Returns the programs that have the flag: "vLLM", "llama-server", both, or "another server". */
const char *peer_flag_owner(const struct peer_flag *flag);

/* Returns whether `values` has the value (or "*"), and stores what it is here, of *out_length bytes
 * and possibly empty, in *out. */
bool peer_flag_map(const struct peer_flag *flag, const char *value, const char **out,
                   size_t *out_length);

#endif
