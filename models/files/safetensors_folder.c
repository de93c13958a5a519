/* Finds the files of a Hugging Face folder that hold the weights. The index names tensors and their
 * shards; names come from outside, so a shard is a plain file name inside the folder, never a
 * path. */
#include "models/files/safetensors.h"

#include "models/files/input_file.h"
#include "models/files/json_file.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SINGLE_NAME "model.safetensors"
#define INDEX_NAME "model.safetensors.index.json"
#define MAX_INDEX_BYTES ((size_t)32 << 20)

/* One folder being opened. */
struct folder {
    struct tensor_file *file;
    char index_path[PATH_MAX];
    const cJSON *weight_map;
    const char **shards; /* [num_shards], sorted: shard i is part i */
    int num_shards;
    struct error *err;
};

static int open_part(struct tensor_file *file, const char *name, struct error *err) {
    char path[PATH_MAX];
    if (input_file_join_path(file->path, name, path, err) != 0)
        return -1;
    return tensor_parts_open(file, path, safetensors_parse, err);
}

static bool name_ends_with(const char *name, const char *end) {
    return text_ends_with((struct text){name, strlen(name)}, end);
}

static bool is_shard_name(const char *name) {
    for (const char *at = name; *at != '\0'; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f || *at == '/')
            return false;
    return name[0] != '.' && strlen(name) <= 255 && name_ends_with(name, ".safetensors");
}

static int check_map(const struct folder *f) {
    const cJSON *item;
    if (!cJSON_IsObject(f->weight_map) || f->weight_map->child == NULL)
        return error_set(f->err, ERROR_MODEL, "%s: weight_map: is missing, empty or no object",
                         f->index_path);
    cJSON_ArrayForEach(item, f->weight_map) {
        if (!cJSON_IsString(item) || !is_shard_name(item->valuestring))
            return error_set(f->err, ERROR_MODEL,
                             "%s: weight_map: '%.100s': the shard is not a plain file name that "
                             "ends in .safetensors",
                             f->index_path, item->string);
    }
    return 0;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Lists the distinct names of the map, sorted. */
static int list_shards(struct folder *f) {
    size_t count = (size_t)cJSON_GetArraySize(f->weight_map), num_shards = 0;
    f->shards = calloc(count + 1, sizeof(*f->shards));
    if (f->shards == NULL)
        return error_set(f->err, ERROR_MEMORY, "%s: no memory for %zu tensors", f->index_path,
                         count);
    const cJSON *item;
    size_t i = 0;
    cJSON_ArrayForEach(item, f->weight_map) f->shards[i++] = item->valuestring;
    qsort(f->shards, count, sizeof(*f->shards), compare_names);
    for (i = 0; i < count; i++)
        if (i == 0 || strcmp(f->shards[num_shards - 1], f->shards[i]) != 0)
            f->shards[num_shards++] = f->shards[i];
    if (num_shards > TENSOR_MAX_PARTS)
        return error_set(f->err, ERROR_MODEL, "%s: weight_map: %zu shards (at most %d)",
                         f->index_path, num_shards, TENSOR_MAX_PARTS);
    f->num_shards = (int)num_shards;
    return 0;
}

/* A tensor of the map that no shard has is no contradiction: real indices name a tied head that was
 * not stored. Loading names what is missing. */
static int compare_with_map(const struct folder *f) {
    const cJSON *item;
    cJSON_ArrayForEach(item, f->weight_map) {
        const struct tensor_info *tensor = tensor_file_find(f->file, item->string);
        if (tensor != NULL && strcmp(f->shards[tensor->part], item->valuestring) != 0)
            return error_set(f->err, ERROR_MODEL,
                             "%s: weight_map: tensor '%.100s' is in the shard %.100s and not, as "
                             "the map says, in %.100s",
                             f->index_path, item->string, f->shards[tensor->part],
                             item->valuestring);
    }
    return 0;
}

static int open_mapped(struct folder *f) {
    if (check_map(f) != 0 || list_shards(f) != 0)
        return -1;
    for (int i = 0; i < f->num_shards; i++)
        if (open_part(f->file, f->shards[i], f->err) != 0)
            return -1;
    if (tensor_parts_join(f->file, f->err) != 0)
        return -1;
    snprintf(f->file->format, sizeof(f->file->format), "safetensors, %d files", f->num_shards);
    return compare_with_map(f);
}

static int open_index(struct tensor_file *file, struct error *err) {
    struct folder folder = {.file = file, .err = err};
    if (input_file_join_path(file->path, INDEX_NAME, folder.index_path, err) != 0)
        return -1;
    cJSON *json = json_file_read(folder.index_path, MAX_INDEX_BYTES, err);
    int status = -1;
    if (json != NULL) {
        folder.weight_map = cJSON_GetObjectItemCaseSensitive(json, "weight_map");
        status = open_mapped(&folder);
    }
    free(folder.shards);
    cJSON_Delete(json);
    return status;
}

static bool is_pickle(const char *name) {
    return name_ends_with(name, ".bin") || name_ends_with(name, ".pth") ||
           name_ends_with(name, ".pt");
}

/* Advises by what lies in the folder. */
static int refuse_folder(const struct tensor_file *file, struct error *err) {
    char pickle[64] = "", gguf[64] = "";
    DIR *dir = opendir(file->path);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        if (is_pickle(entry->d_name))
            snprintf(pickle, sizeof(pickle), "%.63s", entry->d_name);
        if (name_ends_with(entry->d_name, ".gguf"))
            snprintf(gguf, sizeof(gguf), "%.63s", entry->d_name);
    }
    if (dir != NULL)
        closedir(dir);
    if (pickle[0] != '\0')
        return error_set(err, ERROR_MODEL,
                         "%s: holds its weights as %s: pickle files can run code and are never "
                         "read; " SINGLE_NAME " is needed",
                         file->path, pickle);
    if (gguf[0] != '\0')
        return error_set(err, ERROR_MODEL,
                         "%s: is a directory without " SINGLE_NAME
                         "; name the GGUF file in it (%s)",
                         file->path, gguf);
    return error_set(err, ERROR_MODEL,
                     "%s: is a directory with neither " SINGLE_NAME " nor " INDEX_NAME, file->path);
}

static bool has(const char *folder, const char *name) {
    char path[PATH_MAX];
    return input_file_join_path(folder, name, path, NULL) == 0 && !input_file_is_missing(path);
}

int safetensors_open_folder(struct tensor_file *file, struct error *err) {
    if (has(file->path, SINGLE_NAME)) {
        snprintf(file->format, sizeof(file->format), "safetensors");
        if (open_part(file, SINGLE_NAME, err) != 0)
            return -1;
        return tensor_parts_join(file, err);
    }
    return has(file->path, INDEX_NAME) ? open_index(file, err) : refuse_folder(file, err);
}
