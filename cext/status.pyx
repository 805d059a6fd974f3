"""The version of the core; its statuses become exceptions in ``tl_errors.pxd``."""

from tl_core cimport *


def abi_version():
    return tl_abi_version()
