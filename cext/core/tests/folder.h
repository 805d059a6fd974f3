/* A folder of a test's own, with all that the test leaves in it. For a file that begins with _XOPEN_SOURCE 700. */
#ifndef TIERLOG_TESTS_FOLDER_H
#define TIERLOG_TESTS_FOLDER_H

#include "check.h"

#include <ftw.h>

enum { PATH_SIZE = 256 };

typedef struct folder {
    char path[PATH_SIZE];
} folder;

static inline folder new_folder(void) {
    folder made;
    const char *above = getenv("TMPDIR");
    int size = snprintf(made.path, PATH_SIZE, "%s/tierlog-core-XXXXXX", above ? above : P_tmpdir);
    CHECK(size > 0 && size < PATH_SIZE);
    CHECK(mkdtemp(made.path));
    return made;
}

static inline int remove_entry(const char *path, const struct stat *info, int type, struct FTW *walk) {
    (void)info, (void)type, (void)walk;
    return remove(path);
}

static inline void remove_folder(const folder *f) { CHECK(!nftw(f->path, remove_entry, 16, FTW_DEPTH | FTW_PHYS)); }

static inline const char *path_in(const folder *f, const char *below, char *out) {
    CHECK(snprintf(out, PATH_SIZE, "%s/%s", f->path, below) < PATH_SIZE);
    return out;
}

#define PATH_IN(folder, below) path_in(folder, below, (char[PATH_SIZE]){0})

#endif
