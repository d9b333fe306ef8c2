"""Where local parts live and what computes on them. A new kind of device is a file here."""
