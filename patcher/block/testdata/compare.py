"""Reads frames (name, old, new) from stdin; says where putting in the block changed more than the block.

new is empty if the block was refused: then old must not compile either.
"""
import __future__
import ast
import struct
import sys

sys.setrecursionlimit(10000)
FLAGS = 0
for name in __future__.all_feature_names:
    FLAGS |= getattr(__future__, name).compiler_flag


def frames(stream):
    while True:
        frame = []
        for _ in range(3):
            size = stream.read(4)
            if not size:
                return
            frame.append(stream.read(struct.unpack("<I", size)[0]))
        yield frame


def parsed(text):
    try:
        tree = ast.parse(text)
        return tree, compile(tree, "x", "exec", dont_inherit=True)
    except Exception as e:
        return None, e


def is_string(s):
    return isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant) and isinstance(s.value.value, str)


def is_future(s):
    return isinstance(s, ast.ImportFrom) and s.module == "__future__"


def is_ours(s):
    return isinstance(s, ast.Try) and "SGPATCH_TEST" in ast.dump(s.body[0])


def late(tree):
    """A statement that runs before the block and does not share a line with what must come first."""
    lines = set()
    for s in tree.body:
        if is_ours(s):
            return None
        if is_string(s) or is_future(s):
            lines.update((s.lineno, s.end_lineno))
        elif s.lineno not in lines:
            return s
        else:
            lines.update((s.lineno, s.end_lineno))
    return "no block at all"


def wrong(old, new):
    tree, code = parsed(old)
    if not new:
        return "refused, although it compiles" if tree else None
    tree2, code2 = parsed(new)
    if bool(tree) != bool(tree2):
        return "before: %r, after: %r" % (code, code2)
    if not tree:
        return None
    if ast.get_docstring(tree, clean=False) != ast.get_docstring(tree2, clean=False):
        return "another docstring"
    if code.co_flags & FLAGS != code2.co_flags & FLAGS:
        return "other __future__ flags"
    if late(tree2):
        return "runs after %r" % late(tree2)
    kinds = [type(s) for s in tree2.body]
    at = [is_ours(s) for s in tree2.body].index(True)
    if kinds[:at] + kinds[at + 2:] != [type(s) for s in tree.body] or kinds[at + 1] is not ast.Pass:
        return "other statements"


count = 0
for name, old, new in frames(sys.stdin.buffer):
    count += 1
    why = wrong(old, new)
    if why:
        print("FAIL %s: %s" % (name.decode("utf-8", "replace"), why))
print("compared", count)
