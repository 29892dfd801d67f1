"""Bordelon, Noci, Li, Hanin, Pehlevan (2023), Depthwise hyperparameter transfer in residual networks."""
