"""The products of a run, one module each: the cost, the collected data and the files of a product.

A product is one kind of result, such as the grids or the saved tensors.
"""
