# moved in 0.5.10
import os

WAYS = 1
NAME = "b, since 0.5.10"


def ways(world):
    return WAYS


def turn(world):
    if world > 2:
        return None
    return WAYS


def last(world):
    return world - 1
