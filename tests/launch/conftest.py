"""Fixtures that several files share."""

from fakes import tools as tools
