"""Who runs a program: this process, one of several ranks, or a driver's workers."""
