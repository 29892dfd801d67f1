"""Plain Flax modules for kernels read off forward code: name -> (make(width), inputs), and those that must be refused."""

from images import ON_POSITIONS
from note import NOTE, TEN
from refused import REFUSED
from vectors import ON_VECTORS

MODULES = TEN | ON_VECTORS | ON_POSITIONS

__all__ = ["MODULES", "NOTE", "REFUSED"]
