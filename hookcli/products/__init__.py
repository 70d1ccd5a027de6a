"""The products of a run, one module for each product.

A product is one kind of result, such as the grids or the saved tensors. The module of a product
estimates the product's cost, collects the data and writes the files.
"""
