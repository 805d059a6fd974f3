"""Which core this is; the statuses themselves become exceptions in ``tl_errors.pxd``."""

from tl_core cimport *


def abi_version():
    return tl_abi_version()
