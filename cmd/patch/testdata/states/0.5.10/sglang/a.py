# moved in 0.5.10
import os

LIMIT = 1
NAME = "a, since 0.5.10"


def size(world):
    return LIMIT * world


def fits(world):
    if world > 2:
        return False
    return True


def near(world):
    return world == 2
