"""The laws that parameters are drawn with, read off the program of `init`."""

from zoo.laws.law import Fixed as Fixed
from zoo.laws.law import Law as Law
from zoo.laws.law import Unknown as Unknown
from zoo.laws.law import law_of as law_of
from zoo.laws.read import laws as laws
