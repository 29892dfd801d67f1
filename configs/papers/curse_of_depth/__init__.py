"""Figures and tables of Hayou, Doucet, Rousseau: The curse of depth in kernel regime."""
