# Asked of the target interpreter, as python -c. Prints one line "NONCE key hex hex ..." a fact and imports
# nothing that start-up has not imported already: every import here would be paid by each verify.
import sys
def main():
    import os
    nonce, look, path0 = sys.argv[1], sys.argv[2], sys.argv[3:4]
    out = []
    def say(key, *values):
        out.append(" ".join([nonce, key] + [os.fsencode(str(v)).hex() or "-" for v in values]))
    if path0 and sys.path and not getattr(sys.flags, "safe_path", 0) and not sys.flags.isolated:
        sys.path[0] = path0[0]           # what "python FILE" would have there
    elif look == "root" and sys.path and sys.path[0] == "":
        del sys.path[0]                  # apply and revert never take ./sglang
    say("executable", sys.executable)
    say("prefix", sys.prefix, sys.base_prefix)
    say("version", ".".join(map(str, sys.version_info[:3])))
    say("tag", sys.implementation.cache_tag or "", sys.flags.optimize)
    say("pycache", getattr(sys, "pycache_prefix", None) or "")
    say("magic", "".join("%02x" % b for b in sys.modules["_frozen_importlib_external"].MAGIC_NUMBER))
    say("flags", sys.flags.no_site, sys.flags.isolated, sys.flags.ignore_environment)
    for n, v in os.environ.items():
        say("env", n, v)
    def find(name, path=None):
        for f in sys.meta_path:
            try:
                spec = f.find_spec(name, path)
            except Exception as e:
                say("problem", "%s: %s: %s" % (name, type(e).__name__, e))
                continue
            if spec is not None:
                return spec
    spec = find("sglang")
    if spec is not None:
        where = list(spec.submodule_search_locations or ())
        say("sglang", spec.origin or "", *map(os.path.abspath, where))
    seen = set()
    for p in sys.path:
        q = os.path.abspath(p or ".")
        if q not in seen and os.path.isfile(os.path.join(q, "sglang", "__init__.py")):
            say("copy", q)
        seen.add(q)
    site = sys.modules.get("site")
    dirs = []
    if site is not None:
        try:
            dirs = site.getsitepackages()
        except Exception:
            pass
        user = getattr(site, "USER_SITE", None)
        if user:
            say("user", user)
    for d in dirs:
        say("purelib", d, int(d in sys.path))
    for p in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        if p and not sys.flags.ignore_environment:
            say("pythonpath", os.path.abspath(p))
    # site ran before sys.path[0] was put there, so the working directory had no say
    head = sys.path[:1] if sys.path and (path0 or sys.path[0] in ("", os.getcwd())) and not sys.flags.isolated else []
    if head:
        del sys.path[0]
    loaded = sys.modules.get("sitecustomize")
    spec = getattr(loaded, "__spec__", None) or find("sitecustomize")
    if spec is not None:
        say("sitecustomize", spec.origin or "", int(loaded is not None), int(spec.has_location))
        if look == "root" and spec.origin and spec.origin.endswith(".py"):
            try:
                with open(spec.origin, "rb") as f:
                    compile(f.read(), spec.origin, "exec", dont_inherit=True)
            except (SyntaxError, ValueError) as e:
                say("broken", "%s: %s" % (type(e).__name__, e))
            except OSError as e:
                say("problem", "%s: %s" % (spec.origin, e))
    for p in sys.path:
        for c in ("sitecustomize.py", "sitecustomize/__init__.py"):
            c = os.path.join(os.path.abspath(p), c)
            if os.path.isfile(c):
                say("othersite", c)
    sys.path[:0] = head
    sys.stdout.flush()
    os.write(1, ("\n" + "\n".join(out) + "\n" + nonce + " end\n").encode("ascii"))
main()
