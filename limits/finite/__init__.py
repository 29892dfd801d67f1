"""Finite networks: how they are run, their kernels, their linearisation, what is recorded of them."""
