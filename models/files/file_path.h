/* Private to models/: paths of model files and folders, before anything is opened. */
#ifndef QUIRE_MODELS_FILES_FILE_PATH_H
#define QUIRE_MODELS_FILES_FILE_PATH_H

#include "config/error.h"

#include <limits.h>
#include <stdbool.h>

bool file_path_is_folder(const char *path);
/* Returns whether there is nothing by this name. A file that cannot be examined is not missing:
 * opening it says why. */
bool file_path_is_missing(const char *path);
/* Writes FOLDER/NAME; slashes at the folder's end count as one. ERROR_MODEL when that is too
 * long. */
int file_path_join(const char *folder, const char *name, char out[static PATH_MAX],
                   struct error *err);

#endif
