/* A status without a name of its own reaches the user as a riddle. */
#include "check.h"
#include "tierlog/tierlog.h"

int main(void) {
    int named = 0;
    for (int status = 0; status < 256; status++) {
        const char *name = tl_status_name((tl_status)status), *text = tl_status_text((tl_status)status);
        CHECK(name && *name && text && *text);
        if (!strcmp(name, "UNKNOWN")) continue;
        named++;
        for (int other = 0; other < status; other++) {
            CHECK(strcmp(name, tl_status_name((tl_status)other)));
            CHECK(strcmp(text, tl_status_text((tl_status)other)));
        }
    }
    CHECK_EQUAL(named, 26);
    CHECK(!strcmp(tl_status_name(TL_BAD_CRC), "BAD_CRC"));
    CHECK_EQUAL(tl_abi_version(), TIERLOG_ABI_VERSION);
    return 0;
}
