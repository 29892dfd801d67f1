"""Infinite depth, and what depth does to kernels."""
