"""Training finite networks, and measuring how far they are from their limits."""

from zoo import rooms as _rooms
from zoo.rooms import ROOM as ROOM

_rooms.require("zoo", "limits")

from train import data as data
from train.coordinates import coord_check as coord_check
from train.ensemble import ensemble as ensemble
from train.posterior import sample_posterior as sample_posterior
