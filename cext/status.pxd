# The only place that turns a native status into a Python exception.
from tl_core cimport tl_fault, tl_status

cdef object error_of(tl_status status, const tl_fault *fault, object kind)
cdef int check_status(tl_status status, const tl_fault *fault, object kind) except -1
