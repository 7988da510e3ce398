"""The module a."""
import os

LIMIT = 1
NAME = "a"


def size(world):
    return LIMIT * world


def fits(world):
    if world > 2:
        return False
    return True


def near(world):
    return world == 2
