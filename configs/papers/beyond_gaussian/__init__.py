"""Fischer (2025), Mechanics of deep neural networks beyond the Gaussian limit."""
