/* Runs a fuzz target over the files of a folder, where there is no libFuzzer: what was found once stays found with any
 * compiler, and a target that no longer compiles shows at once. Usage: TARGET FOLDER. */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>

static void replay(const char *path) {
    FILE *file = fopen(path, "rb");
    REQUIRE(file && fseek(file, 0, SEEK_END) == 0);
    long size = ftell(file);
    REQUIRE(size >= 0 && fseek(file, 0, SEEK_SET) == 0);
    uint8_t *data = malloc((size_t)size + !size);
    REQUIRE(data && fread(data, 1, (size_t)size, file) == (size_t)size);
    fclose(file);
    LLVMFuzzerTestOneInput(data, (size_t)size);
    free(data);
}

int main(int count, char **arguments) {
    REQUIRE(count == 2);
    DIR *folder = opendir(arguments[1]);
    REQUIRE(folder);
    int replayed = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        char path[4096];
        if (entry->d_name[0] == '.') continue;
        REQUIRE(snprintf(path, sizeof path, "%s/%s", arguments[1], entry->d_name) < (int)sizeof path);
        replay(path);
        replayed++;
    }
    closedir(folder);
    printf("%d inputs\n", replayed);
    return replayed ? 0 : 1;
}
