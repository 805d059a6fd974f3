# Who is inside of a table, so that closing it waits for nobody. Included by segments.pyx.

cdef extern from *:
    """
    /* Who is inside of a table: its owner and the calls under way. The last one to leave frees it. */
    static int tl_enter(int64_t *users) {
        int64_t now = __atomic_load_n(users, __ATOMIC_ACQUIRE);
        while (now > 0)
            if (__atomic_compare_exchange_n(users, &now, now + 1, 1, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return 1;
        return 0;
    }
    static int tl_leave(int64_t *users) { return __atomic_sub_fetch(users, 1, __ATOMIC_ACQ_REL) == 0; }
    static int tl_close_once(int32_t *closed) { return !__atomic_exchange_n(closed, 1, __ATOMIC_ACQ_REL); }
    static int tl_is_closed(const int32_t *closed) { return __atomic_load_n(closed, __ATOMIC_ACQUIRE); }
    """
    bint tl_enter(int64_t *users) noexcept nogil
    bint tl_leave(int64_t *users) noexcept nogil
    bint tl_close_once(int32_t *closed) noexcept nogil
    bint tl_is_closed(const int32_t *closed) noexcept nogil
