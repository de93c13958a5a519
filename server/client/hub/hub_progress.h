/* Progress messages of a download: on a terminal a status a few times a second, elsewhere a line
 * every five seconds, with bytes, rate and the remaining time. */
#ifndef QUIRE_SERVER_CLIENT_HUB_HUB_PROGRESS_H
#define QUIRE_SERVER_CLIENT_HUB_HUB_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum hub_message {
    HUB_NONE,
    HUB_STATUS, /* replaces the previous one (log_status) */
    HUB_LINE,
    HUB_WARNING,
};

struct hub_watcher {
    void (*say)(void *context, enum hub_message kind, const char *line);
    /* Returns whether the download must end at once; called about ten times a second. */
    bool (*stops)(void *context);
    void *context;
    bool is_terminal;
};

#define HUB_PROGRESS_LINE_BYTES 160

struct hub_progress {
    int64_t started_ns, next_ns; /* when the next line is due */
    int64_t sampled_ns, sampled_bytes;
    int64_t first_bytes; /* present at the start */
    double rate;         /* recent bytes per second; 0: not known */
    bool is_terminal;
};

void hub_progress_start(struct hub_progress *out, int64_t bytes, int64_t now_ns, bool is_terminal);
/* bytes of num_bytes are present; the number may fall if a server must start again. Writes the line
 * unless the kind is HUB_NONE. */
enum hub_message hub_progress_update(struct hub_progress *progress, int64_t bytes,
                                     int64_t num_bytes, int64_t now_ns,
                                     char line[static HUB_PROGRESS_LINE_BYTES]);
/* Writes how many bytes were downloaded in what time. */
void hub_progress_end(const struct hub_progress *progress, int64_t bytes, int64_t now_ns,
                      char line[static HUB_PROGRESS_LINE_BYTES]);

#define HUB_SIZE_BYTES 24
/* Writes a size for people: "92.1 MiB". */
void hub_progress_print_size(int64_t bytes, char out[static HUB_SIZE_BYTES]);

#endif
