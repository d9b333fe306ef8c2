"""The array that users hold, and NumPy's functions on it."""
