"""Transports: what ranks say to each other, shared memory, the launching of ranks. A new transport is a file here."""
