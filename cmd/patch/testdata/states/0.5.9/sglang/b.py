"""The module b."""
import os

WAYS = 1
NAME = "b"


def ways(world):
    return WAYS


def turn(world):
    if world > 2:
        return None
    return WAYS


def last(world):
    return world - 1
