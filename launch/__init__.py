"""Programs to run: `python -m launch.COMMAND`, or `limit-zoo COMMAND` from any folder."""

from launch.shadowing import refuse_shadowed_rooms

refuse_shadowed_rooms()

from zoo.rooms import ROOM as ROOM
