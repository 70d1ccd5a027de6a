"""Make the products of a run, which are its pictures, its tables and its saved tensors."""
