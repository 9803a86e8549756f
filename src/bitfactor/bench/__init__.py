"""Timing of exported files, layer by layer and beside other engines."""
