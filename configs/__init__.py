"""One file for each thing a person would run; the header says the command, the time and the result to expect."""

from zoo.rooms import ROOM as ROOM
