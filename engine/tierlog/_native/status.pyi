def abi_version() -> int:
    """TIERLOG_ABI_VERSION of the core that is linked in."""
