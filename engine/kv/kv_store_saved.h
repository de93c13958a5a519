/* Conversations that were saved by name, in files of the store's folder (saved/NAME): the keys of
 * the blocks that must not leave for them, and whatever their owner wrote next to these. A file is
 * sealed like a block (kv_store_cipher.h), together with its name and the store's identity: one of
 * another model, secret or name cannot be read. Any thread. */
#ifndef QUIRE_ENGINE_KV_KV_STORE_SAVED_H
#define QUIRE_ENGINE_KV_KV_STORE_SAVED_H

#include "engine/kv/kv_store.h"
#include "engine/kv/kv_store_file.h"

#define KV_SAVED_MAX_FILES 4096

/* Writes the file, or replaces it: what is there afterwards is the one or the other. */
int kv_saved_write(const struct kv_store_file *file, const char *name, const struct kv_saved *saved,
                   struct error *err);
/* Reads it; the caller frees what it has. ERROR_UNAVAILABLE: there is none of this name. */
int kv_saved_read(const struct kv_store_file *file, const char *name, struct kv_saved *out,
                  struct error *err);
int kv_saved_remove(const struct kv_store_file *file, const char *name, struct error *err);
/* Has the index keep the blocks, or no longer. */
void kv_saved_keep(struct kv_store_index *index, const struct kv_saved *saved);
void kv_saved_unkeep(struct kv_store_index *index, const struct kv_saved *saved);
/* Has a new index keep those of all files; logs which ones cannot be read. */
void kv_saved_keep_all(const struct kv_store_file *file, struct kv_store_index *index);

#endif
