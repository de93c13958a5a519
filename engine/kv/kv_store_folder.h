/* The folder of the store of KV blocks: its lock, which makes one process the owner, its secret and
 * its key.
 *
 *     lock     locked (flock) by the owner while it lives
 *     secret   of the keys and checksums: 192 bytes; with a key file encrypted, 224 bytes
 *     records  what each slot holds (kv_store_file.h)
 *     slots    the blocks
 *
 * In a shared folder, which may be of a network file system, nobody has the lock, and instead of
 * the last two there are folders with a file for each block. */
#ifndef QUIRE_ENGINE_KV_KV_STORE_FOLDER_H
#define QUIRE_ENGINE_KV_KV_STORE_FOLDER_H

#include "engine/kv/kv_store_cipher.h"

#include <stdatomic.h>

struct kv_store_folder {
    char path[256];
    int fd;
    int lock_fd;          /* -1: never becomes the owner */
    atomic_bool is_owner; /* may write */
    bool is_shared;       /* and so may others */
    bool is_encrypted;
    bool is_new; /* the secret was made now: what the files hold is not of it */
    struct block_key_secret secret;
    struct kv_store_key key; /* of the blocks, if is_encrypted */
};

struct kv_store_folder_config {
    const char *directory; /* made if it is missing, not its parents */
    const char *key_file;  /* NULL: not encrypted */
    bool forgets;          /* the secret is made anew and not written; needs the lock */
    bool read_only;        /* does not try to get the lock, makes nothing */
    bool is_shared;
};

/* Takes the lock if nobody has it. Makes a secret as the owner, if there is none or, unless it is
 * shared, a damaged one; fails otherwise, and when the key file does not fit the secret. */
int kv_store_folder_open(struct kv_store_folder *folder,
                         const struct kv_store_folder_config *config, struct error *err);
/* Accepts one that failed to open. Gives the lock back. */
void kv_store_folder_close(struct kv_store_folder *folder);
/* Returns whether this process is the owner now, because the one before has ended. */
bool kv_store_folder_try_lock(struct kv_store_folder *folder);
void kv_store_folder_unlock(struct kv_store_folder *folder);

#endif
