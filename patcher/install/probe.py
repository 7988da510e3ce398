# Asked of the target interpreter, as python -c: prints one line "KEY fact fact ... end", a fact being the hex digits of
# its name and values with NULs between. It imports nothing that start-up has not imported, and is short, because every
# verify waits for its compilation and for its end: it leaves at once, and nothing that a sitecustomize has registered
# for the exit is run, which may send, wait or write.
import os, sys
key, first, flags, site, out = sys.argv[1], sys.argv[2], sys.flags, sys.modules.get("site"), []
def say(*values):
    out.append(b"\0".join([os.fsencode(str(v)).replace(b"\0", b"?") for v in values]).hex())
def find(name):
    for finder in sys.meta_path:
        try:
            spec = finder.find_spec(name, None)
        except Exception as e:
            say("problem", "%s: %r" % (name, e))
        else:
            if spec:
                return spec
# site ran before sys.path[0] was put there: the working directory has no say in which sitecustomize is imported
head = [] if flags.isolated or getattr(flags, "safe_path", 0) else sys.path[:1]
del sys.path[:len(head)]
loaded = sys.modules.get("sitecustomize")
spec = getattr(loaded, "__spec__", None) or find("sitecustomize")
if spec:
    say("sitecustomize", spec.origin or "", int(loaded is not None), int(spec.has_location))
if head and first != "-":                # apply and revert never take ./sglang
    sys.path[:0] = [first] if first else head
sglang = find("sglang")
if sglang:
    say("sglang", sglang.origin or "", *(sglang.submodule_search_locations or ()))
say("path", *sys.path)
say("purelib", *getattr(site, "getsitepackages", list)())
say("python", sys.executable, sys.prefix, sys.base_prefix, "%d.%d.%d" % sys.version_info[:3], sys.implementation.cache_tag or "", flags.optimize,
    getattr(sys, "pycache_prefix", None) or "", getattr(site, "USER_SITE", None) or "", sys.modules["_frozen_importlib_external"].MAGIC_NUMBER.hex())
say("extensions", *sys.modules["_imp"].extension_suffixes())
say("flags", flags.no_site, flags.isolated, flags.ignore_environment)
say("env", *["%s=%s" % item for item in os.environ.items()])
# ---- asked only before the sitecustomize is to be edited
if spec and spec.origin and spec.origin.endswith(".py"):
    try:
        with open(spec.origin, "rb") as f:
            compile(f.read(), spec.origin, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, OSError) as e:
        say("broken", "%s: %s" % (type(e).__name__, e))
# ----
sys.stdout.flush()
os.write(1, ("\n%s %s end\n" % (key, " ".join(out))).encode())
os._exit(0)
