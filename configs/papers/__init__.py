"""Figures of papers, by source."""
