"""The operator table: one row an operator, one file a family. Rows for matrices stand beside their algorithms in ``linalg``."""
