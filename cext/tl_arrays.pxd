# Where the numbers of an array lie. Inline, as in tl_errors.pxd: `from tl_arrays cimport address_of`.

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer


cdef inline size_t address_of(object array) except? 0:
    """Return the address of an array without gaps, valid as long as it lives: ``array.ctypes`` takes a microsecond, the
    buffer a tenth.
    """
    cdef Py_buffer view
    PyObject_GetBuffer(array, &view, PyBUF_SIMPLE)
    cdef size_t address = <size_t>view.buf
    PyBuffer_Release(&view)
    return address
