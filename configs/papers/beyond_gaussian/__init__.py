"""Fischer, Dahmen, Helias (2023), Optimal signal propagation in ResNets through residual scaling (and Fischer's thesis, 2025)."""
