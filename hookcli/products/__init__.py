"""The products (pictures, tables, tensors) that a run can make, one module each."""
