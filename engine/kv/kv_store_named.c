/* Blocks in files of their own, in a folder that processes on several machines share, as a network
 * file system allows: without locks, and with nothing to agree on but names.
 *
 *     ab/KEY-PREVIOUS-GROUP-IDENTITY   a block; ab: the first digits of the key
 *     ab/new-NUMBER                    one that is being written, then renamed
 *
 * A name has all that the index needs, except for the tokens, which are compared when the block is
 * read. Whoever writes the same block writes the same name. Who lists the folder removes what has
 * to leave: when all files together have more than their share of the bytes, the least recently
 * used ones, of other identities by classes of age, since only their names are known. The time of a
 * file's last change is that of its last use. */
#include "engine/kv/kv_store_file.h"

#include "config/base/log.h"
#include "engine/kv/kv_store_saved.h"
#include "config/base/numbers.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NUM_FOLDERS 256
#define NAME_BYTES 128
#define FREE_SHARE                                                                                 \
    16             /* of the bytes are free after a listing, for what is added until the next      \
                    */
#define TOUCH_S 60 /* a use sooner after the last is not noted */
#define LEFTOVER_S                                                                                 \
    3600            /* what is being written for longer was left by a process that has ended       \
                     */
#define RECENT_S 2  /* a folder may have changed again without a later time */
#define NUM_AGES 64 /* classes: each begins at twice the age of the one before */

static const char writing[] = "new-";

/* --- Names --- */

static uint64_t identity_of(const struct kv_store_file *file, int half) {
    uint64_t number;
    memcpy(&number, file->config.identity + half * (int)sizeof(number), sizeof(number));
    return number;
}

static void name_block(const struct block_content *content, uint64_t identity,
                       char out[static NAME_BYTES]) {
    snprintf(out, NAME_BYTES,
             "%02x/%016" PRIx64 "%016" PRIx64 "-%016" PRIx64 "%016" PRIx64 "-%d-%016" PRIx64,
             (unsigned)(content->key.high >> 56), content->key.high, content->key.low,
             content->previous.high, content->previous.low, content->group, identity);
}

/* Returns whether that is a block's name, without the folder. */
static bool parse_name(const char *name, struct block_content *content, uint64_t *identity) {
    char again[NAME_BYTES];
    *content = (struct block_content){0};
    if (sscanf(name, "%16" SCNx64 "%16" SCNx64 "-%16" SCNx64 "%16" SCNx64 "-%d-%16" SCNx64,
               &content->key.high, &content->key.low, &content->previous.high,
               &content->previous.low, &content->group, identity) != 6)
        return false;
    name_block(content, *identity, again);
    return strcmp(name, again + 3) == 0;
}

static int64_t file_bytes(const struct kv_store_file *file) {
    return (int64_t)(file->head_bytes + file->slot_bytes);
}

/* --- Listing --- */

struct listed {
    int folder_fd;
    const char *name; /* in that folder */
    struct block_content content;
    bool is_own;
    int age; /* its class */
    struct stat info;
};

/* What all files have, by whether they are of this identity and by age. */
struct listing {
    const struct kv_store_file *file;
    int64_t now_s;
    int64_t bytes[2][NUM_AGES];
    int64_t num_own;
    int32_t num_damaged;
    int first_age; /* from which on others' files leave */
    struct kv_store_index *index;
    int32_t num_loaded;
};

typedef void (*visit_function)(struct listing *listing, const struct listed *listed);

static int age_class(int64_t seconds) {
    int class = 0;
    for (; seconds > 0 && class < NUM_AGES - 1; seconds /= 2)
        class ++;
    return class;
}

static void remove_listed(const struct listing *listing, const struct listed *listed) {
    if (listing->file->config.folder->is_owner)
        unlinkat(listed->folder_fd, listed->name, 0);
}

static void visit_name(struct listing *listing, int folder_fd, const char *name,
                       visit_function visit) {
    struct listed listed = {.folder_fd = folder_fd, .name = name};
    uint64_t identity;
    bool is_block = parse_name(name, &listed.content, &identity);
    if ((!is_block && strncmp(name, writing, sizeof(writing) - 1) != 0) ||
        fstatat(folder_fd, name, &listed.info, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(listed.info.st_mode))
        return;
    int64_t age_s = listing->now_s - listed.info.st_mtime;
    listed.age = age_class(age_s);
    listed.is_own = is_block && identity == identity_of(listing->file, 0);
    if (is_block)
        visit(listing, &listed);
    else if (age_s > LEFTOVER_S)
        remove_listed(listing, &listed);
}

static void list_files(struct listing *listing, visit_function visit) {
    for (int i = 0; i < NUM_FOLDERS; i++) {
        char name[8];
        snprintf(name, sizeof(name), "%02x", (unsigned)i);
        int fd = openat(listing->file->config.folder->fd, name,
                        O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
        const struct dirent *entry;
        while (folder != NULL && (entry = readdir(folder)) != NULL)
            visit_name(listing, fd, entry->d_name, visit);
        if (folder != NULL)
            closedir(folder);
        else if (fd >= 0)
            close(fd);
    }
}

/* Returns a number that changes with the names in the folders; 0: they may have changed since. */
static uint64_t sum_changes(const struct kv_store_file *file) {
    uint64_t sum = 1;
    int64_t now_s = time(NULL);
    for (int i = 0; i < NUM_FOLDERS; i++) {
        char name[8];
        struct stat info;
        snprintf(name, sizeof(name), "%02x", (unsigned)i);
        if (fstatat(file->config.folder->fd, name, &info, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (now_s - info.st_mtime <= RECENT_S)
            return 0;
        sum =
            sum * 31 + (uint64_t)info.st_mtim.tv_sec * 1000000000 + (uint64_t)info.st_mtim.tv_nsec;
    }
    return sum;
}

static bool look(struct kv_store_file *file, struct kv_store_room *room) {
    (void)room;
    return file->seen_changes == 0 || sum_changes(file) != file->seen_changes;
}

static void count_file(struct listing *listing, const struct listed *listed) {
    if (listed->is_own && listed->info.st_size != file_bytes(listing->file)) {
        listing->num_damaged++;
        remove_listed(listing, listed);
        return;
    }
    listing->bytes[listed->is_own][listed->age] += listed->info.st_size;
    listing->num_own += listed->is_own;
}

static void load_file(struct listing *listing, const struct listed *listed) {
    if (!listed->is_own) {
        if (listed->age >= listing->first_age)
            remove_listed(listing, listed);
        return;
    }
    uint64_t stamp =
        (uint64_t)listed->info.st_mtim.tv_sec * 1000000000 + (uint64_t)listed->info.st_mtim.tv_nsec;
    if (listing->num_loaded < kv_store_index_num_slots(listing->index) &&
        kv_store_index_load(listing->index, listing->num_loaded, &listed->content, stamp))
        listing->num_loaded++;
}

/* Decides which of others' files leave, so that no more than `limit` bytes stay if the same is done
 * with its own. Returns the bytes that stay. */
static int64_t choose_age(struct listing *listing, int64_t limit) {
    int64_t total = 0, excess, others = 0;
    for (int age = 0; age < NUM_AGES; age++)
        total += listing->bytes[false][age] + listing->bytes[true][age];
    listing->first_age = NUM_AGES;
    for (excess = total - limit; excess > 0 && listing->first_age > 0;) {
        int age = --listing->first_age;
        excess -= listing->bytes[false][age] + listing->bytes[true][age];
        others += listing->bytes[false][age];
    }
    return listing->file->config.folder->is_owner ? total - others : total;
}

static void remove_file(const struct kv_store_file *file, const struct block_content *content) {
    char name[NAME_BYTES];
    name_block(content, identity_of(file, 0), name);
    if (file->config.folder->is_owner)
        unlinkat(file->config.folder->fd, name, 0);
}

static int load(struct kv_store_file *file, struct kv_store_room *room, struct kv_store_index **out,
                uint64_t *num_damaged, struct error *err) {
    struct listing listing = {.file = file, .now_s = time(NULL)};
    struct block_content left;
    int64_t max_bytes = file->config.max_bytes, limit = max_bytes - max_bytes / FREE_SHARE;
    (void)room;
    uint64_t changes = sum_changes(file);
    list_files(&listing, count_file);
    int64_t bytes = choose_age(&listing, limit);
    int64_t num_slots = listing.num_own + max_int64(max_bytes - bytes, 0) / file_bytes(file);
    num_slots = min_int64(max_int64(num_slots, 1), INT32_MAX / 2);
    listing.index = kv_store_index_create((int32_t)num_slots, file->config.block_size);
    if (listing.index == NULL)
        return error_set(err, ERROR_MEMORY, "kv-store: no memory for an index of %d blocks",
                         (int)num_slots);
    list_files(&listing, load_file);
    if (file->config.folder->is_owner)
        kv_saved_keep_all(file, listing.index);
    kv_store_index_begin(listing.index);
    bool removes = file->config.folder->is_owner;
    while (removes && bytes > limit && kv_store_index_shrink(listing.index, &left)) {
        remove_file(file, &left);
        bytes -= file_bytes(file);
    }
    if (listing.num_damaged > 0)
        log_warning("kv-store: %s: %d files are damaged, their blocks are lost",
                    file->config.folder->path, listing.num_damaged);
    *num_damaged += (uint64_t)listing.num_damaged;
    file->seen_changes = changes;
    *out = listing.index;
    return 0;
}

/* --- One block --- */

/* Closes it; what was not written directly is on the disk before, and leaves the cache. */
static int finish_file(int fd, int status) {
    if (status == 0 && !kv_store_file_is_direct(fd)) {
        status = fdatasync(fd);
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    }
    int code = errno;
    if (close(fd) != 0)
        return -1;
    errno = code;
    return status;
}

static int write_named(const struct kv_store_file *file, struct kv_store_room *room, int32_t slot,
                       const struct block_content *content, int32_t num_drafted,
                       const struct block_content *left) {
    char name[NAME_BYTES], temporary[NAME_BYTES], folder[3] = {0};
    int folder_fd = file->config.folder->fd;
    uint64_t number;
    (void)slot;
    if (left != NULL)
        remove_file(file, left);
    name_block(content, identity_of(file, 0), name);
    if (faccessat(folder_fd, name, F_OK, 0) == 0)
        return 0; /* another process was sooner */
    if (kv_store_record_seal(file, room, 0, identity_of(file, 1), content, num_drafted) != 0 ||
        getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number))
        return -1;
    memcpy(folder, name, 2);
    snprintf(temporary, sizeof(temporary), "%s/%s%016" PRIx64, folder, writing, number);
    int fd = kv_store_file_open_direct(file, temporary, O_WRONLY | O_CREAT | O_EXCL);
    if (fd < 0 && errno == ENOENT && (mkdirat(folder_fd, folder, 0700) == 0 || errno == EEXIST))
        fd = kv_store_file_open_direct(file, temporary, O_WRONLY | O_CREAT | O_EXCL);
    if (fd < 0)
        return -1;
    if (finish_file(
            fd, kv_store_file_transfer(fd, true, room->record, (size_t)file_bytes(file), 0)) == 0 &&
        renameat(folder_fd, temporary, folder_fd, name) == 0)
        return 0;
    int code = errno;
    unlinkat(folder_fd, temporary, 0);
    errno = code;
    return -1;
}

static void note_use(const struct kv_store_file *file, int fd, const struct stat *info) {
    if (file->config.folder->is_owner && time(NULL) - info->st_mtime > TOUCH_S)
        (void)!futimens(fd, NULL);
}

static enum kv_store_found read_named(const struct kv_store_file *file, struct kv_store_room *room,
                                      int32_t slot, uint64_t generation,
                                      const struct block_content *content, int32_t *num_drafted) {
    char name[NAME_BYTES];
    struct stat info;
    (void)slot;
    (void)generation;
    name_block(content, identity_of(file, 0), name);
    int fd = kv_store_file_open_direct(file, name, O_RDONLY);
    if (fd < 0)
        return errno == ENOENT || errno == ESTALE ? KV_STORE_GONE : KV_STORE_DAMAGED;
    bool is_read =
        fstat(fd, &info) == 0 && info.st_size == file_bytes(file) &&
        kv_store_file_transfer(fd, false, room->record, (size_t)file_bytes(file), 0) == 0;
    int code = errno;
    bool is_right = is_read && kv_store_record_open(file, room, 0, identity_of(file, 1), content) &&
                    kv_store_record_open_block(file, room, num_drafted);
    if (is_right)
        note_use(file, fd, &info);
    (void)finish_file(fd, -1);
    if (is_right)
        return KV_STORE_FOUND;
    if (!is_read && code == ESTALE) /* removed meanwhile, by another machine */
        return KV_STORE_GONE;
    remove_file(file, content);
    return KV_STORE_DAMAGED;
}

static void forget_file(struct listing *listing, const struct listed *listed) {
    if (listed->is_own)
        remove_listed(listing, listed);
}

static int renew(struct kv_store_file *file, struct kv_store_room *room, uint64_t generation) {
    struct listing listing = {.file = file, .now_s = time(NULL)};
    (void)room;
    file->generation = generation;
    list_files(&listing, forget_file);
    return 0;
}

const struct kv_store_ops kv_store_named = {
    .look = look, .load = load, .write = write_named, .read = read_named, .renew = renew};
