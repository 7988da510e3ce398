"""Does the patched gate decide rightly?  Run as: python -I -B -c TEXT < request, in an empty directory.

request   {"root": "/the/install's/root", "files": {path: base64}, "pristine": {path: base64}}
          paths from the root; "files" as they would be, "pristine" the same files before the hunks
answer    {"ok": bool, "checked": N, "failures": ["one line each", at most 20]}
exit      0 ok, 1 not ok, 2 a request that cannot be read

Both texts are executed, with stand-ins for torch, the management libraries and the rest of SGLang: no
GPU, no torch, nothing is imported from the install.  Each scenario is one imaginary machine, one value
of the variable and freshly executed modules.  Where the gate must not act, the patched text has to
decide and log what the pristine one does; where it must, what the pristine one does with full NVLink,
up to the cap.  A text that cannot be run this way is a failure, never a pass.
"""

import __future__
import ast
import base64
import ctypes
import importlib
import importlib.abc
import importlib.machinery
import inspect
import json
import logging
import os
import re
import signal
import sys
import types
import warnings

GATE = "SGLANG_FORCE_CUSTOM_AR_PCIE"
CAP, DEFAULT_CAP = GATE + "_MAX_BYTES", 1048576
SRT = "sglang/srt/"
DEV = SRT + "distributed/device_communicators/"
CAR = DEV + "custom_all_reduce.py"
MODULE = DEV.replace("/", ".") + "custom_all_reduce"  # and with _utils, _v2: the modules under test
V2_SWITCHES = ("SGLANG_USE_JIT_ALL_REDUCE", "SGLANG_OPT_USE_CUSTOM_ALL_REDUCE_V2")
PLATFORMS = ("cuda", "hip", "musa")
KiB, MiB = 1024, 1024 * 1024
MOST = 20  # failures in an answer
SIZES = (16, 2 * KiB, 42 * KiB, 42 * KiB + 8, 64 * KiB, 64 * KiB + 16, MiB - 16, MiB, MiB + 16)
SIZES += (8 * MiB - 16, 8 * MiB, 8 * MiB + 16, 64 * MiB)

world = types.SimpleNamespace()  # the machine of the scenario that is running
events = []  # what it did, in order: ("log", level, text), ("kernel", flag), ("v2",)


# ---- stand-ins --------------------------------------------------------------------------------------
class Nothing:
    """Answers everything and decides nothing: stands for any name that is not known here."""

    def __init__(self, *a, **k):
        pass

    def __call__(self, *a, **k):
        # a decorator hands its function back, or the text would lose it
        decorated = len(a) == 1 and not k and callable(a[0]) and not isinstance(a[0], Nothing)
        return a[0] if decorated else Nothing()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()

    __mro_entries__ = lambda self, bases: (object,)
    __repr__ = lambda self: "stand-in"
    __getitem__ = lambda self, key: Nothing()
    __enter__ = lambda self: self
    __iter__ = lambda self: iter(())
    __exit__ = __bool__ = __lt__ = __gt__ = __le__ = __ge__ = lambda self, *a: False
    __int__ = __index__ = __len__ = lambda self: 0
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = lambda self, other: Nothing()
    __floordiv__ = __mod__ = __or__ = __ror__ = __and__ = lambda self, other: Nothing()


class Module(types.ModuleType):
    """A stand-in module: prepared names, then prepared or real submodules, then Nothing."""

    def __getattr__(self, name):
        full = self.__name__ + "." + name
        if name.startswith("__"):
            raise AttributeError(name)
        if full in finder.code or full in finder.prepared:
            return importlib.import_module(full)
        return type(name, (Exception,), {}) if name.endswith(("Error", "Exception")) else Nothing()


class Tensor:
    """Only its size in bytes and its place in memory matter."""

    dtype, is_cuda = "bfloat16", True

    def __init__(self, nbytes=4, contiguous=True, storage=None):
        self.nbytes, self.contiguous, self.whole = nbytes, contiguous, storage or nbytes

    numel = lambda self: self.nbytes // 2
    element_size = lambda self: 2
    is_contiguous = lambda self, *a, **k: self.contiguous
    storage = untyped_storage = lambda self: types.SimpleNamespace(nbytes=lambda: self.whole)
    item = __int__ = __index__ = storage_offset = lambda self: 0
    __getattr__ = Nothing.__getattr__


class Device:
    type = "cuda"

    def __init__(self, text):
        self.index = int(str(text).partition(":")[2] or 0)


class Kernel(Module):
    """The kernel bindings of all releases."""

    IS_CUSTOM_AR_AVAILABLE = property(lambda self: world.kernel)
    use_vllm_custom_allreduce = property(lambda self: world.native)
    allocate_meta_buffer = lambda self, size: Tensor(size)
    get_meta_buffer_ipc_handle = lambda self, buffer: b"handle"

    def meta_size(self):
        kernel_library()
        return 1024

    def init_custom_ar(self, *a, **k):
        last = k.get("full_nvlink", a[-1] if a else None)
        events.append(("kernel", last if isinstance(last, bool) else None))
        return 1


class Version(Module):
    """torch.version: which of the three platforms this torch was built for."""

    cuda = property(lambda self: "12.8" if world.platform == "cuda" else None)
    hip = property(lambda self: "6.2" if world.platform == "hip" else None)
    musa = property(lambda self: "4.0" if world.platform == "musa" else None)


class Runtime:
    """The CUDA runtime: pointers, and nothing behind them."""

    cudaMalloc = cudaIpcOpenMemHandle = lambda self, _: ctypes.c_void_p(4096)
    cudaIpcGetMemHandle = lambda self, pointer: b"handle"
    cudaFree = cudaMemset = lambda self, *a: None


class Envs:
    """sglang.srt.environ.envs, with the defaults written in that file."""

    def __init__(self, text):
        found = re.findall(r"^    (\w+) = Env\w+\((True|False|None|\d+|\"[^\"]*\")\)", text, re.M)
        self.defaults = {name: ast.literal_eval(value) for name, value in found}

    def __getattr__(self, name):
        def get():
            value = os.environ.get(name)
            default = self.defaults.get(name, False)
            return default if value is None else value.lower() in ("1", "true", "yes", "y")

        return types.SimpleNamespace(get=get, is_set=lambda: name in os.environ)


def peers(a, b):
    """Can GPU a reach GPU b?  "last": all but the last one can."""
    return world.p2p is True or (world.p2p == "last" and world.ws - 1 not in (a, b))


def fill(objects, *a, **k):
    for i, x in enumerate(objects):
        if x is None:
            objects[i] = (b"handle", 0)


def kernel_library():
    if not world.kernel:
        raise ImportError("no kernel library here")
    return {}


def same(value):
    return lambda *a, **k: value


def a_class(name, base=object, **attributes):
    return type(name, (base,), attributes)


def machine():
    """Torch and the management libraries of the world's machine."""
    nvml = {
        "NVMLError": a_class("NVMLError", Exception),
        "NVML_P2P_CAPS_INDEX_NVLINK": 2,
        "NVML_P2P_STATUS_OK": 0,
        "nvmlDeviceGetHandleByIndex": lambda i: i,
        "nvmlDeviceGetP2PStatus": lambda a, b, index: 0 if world.nvlink else 5,
    }
    amd = {
        "AmdSmiException": a_class("AmdSmiException", Exception),
        "amdsmi_get_processor_handles": lambda: list(range(16)),
        "amdsmi_topo_get_link_type": lambda a, b: {"hops": 1, "type": 2 if world.nvlink else 1},
    }
    torch = {"device": Device, "Tensor": Tensor, "__version__": "2.9.1"}
    torch.update({name: same(Tensor()) for name in ("tensor", "empty", "zeros")})
    cuda = {"is_available": same(True), "device_count": lambda: world.ws, "can_device_access_peer": peers}
    libraries = {"pynvml": nvml, "pymtml": nvml, "amdsmi": amd}
    return {"torch": torch, "torch.cuda": cuda, "torch.version": Version, **libraries}


def distributed():
    """torch.distributed, seen from the world's rank."""
    dist = {"ProcessGroup": a_class("ProcessGroup"), "Backend": a_class("Backend", NCCL="nccl")}
    dist.update(is_initialized=same(True), get_backend=same("gloo"), all_gather=same(None))
    dist.update(all_gather_object=fill, broadcast_object_list=fill)
    dist.update(get_rank=lambda *a, **k: world.rank, get_world_size=lambda *a, **k: world.ws)
    return dict(dist, get_process_group_ranks=lambda *a, **k: list(range(world.ws)))


def standins(root):
    """Prepared modules by name: attributes, a function that makes them for a run, or a class of module."""
    dev = DEV.replace("/", ".")
    same_node = lambda *a, **k: [world.node] * world.ws
    platform = types.SimpleNamespace(**{"is_" + p: same_platform(p) for p in PLATFORMS})
    return {
        **machine(),
        "torch.distributed": distributed(),
        "sgl_kernel": kernel_library,
        "sglang.srt._custom_ops": Kernel,
        dev + "custom_all_reduce_ops": Kernel,
        dev + "cuda_wrapper": {"CudaRTLibrary": Runtime},
        dev + "configs.custom_all_reduce_v2": {"get_supported_world_sizes": lambda: list(range(2, 9))},
        "sglang.srt.distributed.parallel_state": {"in_the_same_node_as": same_node},
        "sglang.srt.platforms": {"current_platform": platform},
        "sglang.srt.environ": {"envs": Envs(read(root, SRT + "environ.py"))},
        "sglang.srt.utils": utils(root),
    }


def same_platform(name):
    return lambda: world.platform == name


def utils(root):
    """sglang.srt.utils: the install's own small functions where they can be cut out, ours otherwise."""
    texts = [read(root, SRT + "utils" + p) for p in (".py", "/common.py", "/env_vars.py", "/__init__.py")]
    own = []
    for name in ("get_bool_env_var", "get_int_env_var", "is_cuda", "is_hip", "is_musa"):
        found = re.search(r"^def %s\(.*?(?=^\S|\Z)" % name, "\n".join(texts), re.M | re.S)
        try:
            own.append(compile(found.group(), "utils", "exec", __future__.annotations.compiler_flag, True))
        except (AttributeError, SyntaxError, ValueError):
            pass

    def make():
        names = {"is_" + p: same_platform(p) for p in PLATFORMS}
        names.update(os=os, torch=importlib.import_module("torch"), cuda_device_count_stateless=lambda: world.ws)
        names.update(logger=logging.getLogger("utils"), _warned_bool_env_var_keys=set())
        names["get_bool_env_var"] = lambda name, default="false": os.getenv(name, default).lower() in ("true", "1")
        names["log_info_on_rank0"] = lambda logger, text: world.rank or logger.info(text)
        for code in own:
            exec(code, names)
        return names

    return make


# ---- running a text ---------------------------------------------------------------------------------
class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers every import but the standard library's."""

    prepared, code = {}, {}
    standard = set(getattr(sys, "stdlib_module_names", ()))

    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in self.standard or top in sys.builtin_module_names or not self.standard and self.on_disk(top):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=name not in self.code)

    def on_disk(self, top):  # Python 3.9 has no list of its own modules
        here = os.path.dirname(os.__file__)
        return importlib.machinery.PathFinder.find_spec(top, [here, here + "/lib-dynload"]) is not None

    def create_module(self, spec):
        prepared = self.prepared.get(spec.name)
        kind = prepared if isinstance(prepared, type) else Module
        return types.ModuleType(spec.name) if spec.name in self.code else kind(spec.name)

    def exec_module(self, module):
        code, prepared = self.code.get(module.__name__), self.prepared.get(module.__name__)
        if code:
            module.__file__ = code.co_filename
            exec(code, module.__dict__)
            instrument(module)
        elif prepared and not isinstance(prepared, type):
            module.__dict__.update(prepared() if callable(prepared) else prepared)


def instrument(module):
    """The real peer test starts processes on real GPUs; V2's constructor is worth an event."""
    if "gpu_p2p_access_check" in module.__dict__:
        module.gpu_p2p_access_check = peers
    v2 = module.__dict__.get("CustomAllReduceV2")
    if isinstance(v2, type) and v2.__module__ == module.__name__:
        real = v2.__init__

        def init(self, *a, **k):
            events.append(("v2",))
            real(self, *a, **k)

        v2.__init__ = init


finder = Finder()


class Capture(logging.Handler):
    def emit(self, record):
        try:
            text = record.getMessage()
        except Exception as e:  # logging itself would only print a traceback
            text = "a log line that cannot be formatted: %s" % e
        events.append(("log", record.levelname, plain(text)))


class Said:
    """In place of sys.stdout and sys.stderr: what a text prints is an event too."""

    def write(self, text):
        if text.strip():
            events.append(("log", "PRINTED", plain(text)))

    flush = close = lambda self: None
    isatty = lambda self: False


def plain(text):
    return re.sub(r"0x[0-9a-fA-F]+", "0x", str(text))


FORBIDDEN = {"subprocess.Popen", "socket.connect", "socket.bind", "ctypes.dlopen"}
FORBIDDEN |= {"os." + n for n in "mkdir remove rename rmdir link symlink system exec fork posix_spawn kill".split()}


def guard(event, args):
    """A text that does more than decide gets an exception: nothing here may touch the machine."""
    writes = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if writes or event in FORBIDDEN:
        raise PermissionError("the text tried to do more than decide: " + event)


def family(root, overlay):
    """Compiled texts of the modules under test, by module name: the overlay's, the rest from the root."""
    names = {p for p in overlay if p.startswith(DEV) and p.endswith(".py")}
    folder = os.path.join(root, *DEV.split("/"))
    if os.path.isdir(folder):
        ours = re.compile(r"custom_all_reduce(?!_ops\.)\w*\.py")
        names |= {DEV + n for n in os.listdir(folder) if ours.fullmatch(n)}
    out = {}
    for p in sorted(names):
        data = overlay[p] if p in overlay else read(root, p, binary=True)
        # annotations as text: newer syntax in them must not stop an older interpreter
        out[p[:-3].replace("/", ".")] = compile(data, p, "exec", __future__.annotations.compiler_flag, True)
    return out


def read(root, path, binary=False):
    try:
        with open(os.path.join(root, *path.split("/")), "rb") as f:
            data = f.read()
    except OSError:
        data = b""
    return data if binary else data.decode("utf-8", "replace")


FRESH = {"sglang.srt.utils", "sgl_kernel"}  # beside the modules under test: these depend on the scenario
NORMAL = dict(platform="cuda", how="class", ws=8, rank=0, nvlink=False, p2p=True, node=True)
NORMAL.update(kernel=True, native=True, value=None, env={}, more={})


def run(code, **scenario):
    """One scenario on one text: what was decided and what was said, as plain data."""
    scenario = dict(NORMAL, **scenario)
    world.__dict__.update(scenario)
    os.environ.clear()  # the caller's variables decide nothing here
    os.environ.update(scenario["env"], **({} if scenario["value"] is None else {GATE: scenario["value"]}))
    for name in FRESH | finder.code.keys() | code.keys():
        sys.modules.pop(name, None)
        parent, _, child = name.rpartition(".")
        getattr(sys.modules.get(parent), "__dict__", {}).pop(child, None)
    finder.code = code
    del events[:]
    answer = {}
    try:
        decide(answer)
    except Timeout:
        raise
    except BaseException as e:  # SystemExit too: whatever it is, the text did not decide
        answer["error"] = plain("%s: %s" % (type(e).__name__, e))
    answer["kernel"] = [e[1] for e in events if e[0] == "kernel"]
    answer["events"] = list(events)
    return answer


def decide(answer):
    group = importlib.import_module("torch.distributed").ProcessGroup()
    device = Device("cuda:%d" % world.rank)
    if world.how == "utils":  # the moved test itself, asked as V2 asks it
        test = importlib.import_module(MODULE + "_utils").can_use_custom_all_reduce_with_nvlink
        as_v2 = dict(supported_world_size=list(range(2, 9)), cls_name="CustomAllReduceV2")
        answer["returned"] = repr(test(group=group, device=device, **as_v2))
        return
    made = maker(answer, group, device)(group=group, device=device, **world.more)
    answer["class"], answer["disabled"] = type(made).__name__, bool(made.disabled)
    answer["max_size"] = getattr(made, "max_size", None)
    answer["used"] = {n: bool(made.should_custom_ar(Tensor(n))) for n in SIZES}
    answer["used"]["loose"] = bool(made.should_custom_ar(Tensor(42 * KiB, False, 64 * MiB)))
    answer["used"]["packed"] = bool(made.should_custom_ar(Tensor(42 * KiB, False)))
    made.disabled = True  # or its __del__ would act in another scenario


def maker(answer, group, device):
    if world.how == "v2":
        return importlib.import_module(MODULE + "_v2").CustomAllReduceV2
    module = importlib.import_module(MODULE)
    if world.how == "class":
        return module.CustomAllreduce
    dispatch = module.dispatch_custom_allreduce
    chosen = dispatch(group=group, device=device) if inspect.signature(dispatch).parameters else dispatch()
    answer["returned"] = getattr(chosen, "__name__", type(chosen).__name__)
    return chosen


class Timeout(BaseException):
    """The text does not come to an end."""


class Enough(Exception):
    """There are as many failures as are reported."""


# ---- the table --------------------------------------------------------------------------------------
OFF, UNCLEAR, ON = (None, "0", "false", "False"), ("", "yes", "2", "on", " 1"), ("1", "true", "TRUE")
BRIEF = (None, "false", "", "yes", "1", "true")  # one text asked twice need not hear every spelling
BAD_CAPS, GOOD_CAPS = ("abc", "0", "-5", "", "1.5"), (16, 65536, MiB + 16, 8 * MiB, 1 << 30)
FORCED = tuple(dict(ws=n) for n in (4, 6, 8))
# where the variable must not matter, whatever its value
UNTOUCHED = tuple(dict(ws=n, nvlink=True) for n in (2, 4, 6, 8)) + (dict(ws=2), dict(kernel=False))
REFUSED = (dict(ws=3), dict(ws=3, nvlink=True), dict(node=False), dict(p2p=False), dict(p2p="last"))
REFUSED += (dict(p2p=False, nvlink=True), dict(ws=2, p2p=False))
REFUSED += (dict(p2p=False, env={"SGLANG_SKIP_P2P_CHECK": "1"}),)


class Check:
    """Demands, counted; the pristine answers are kept, for they do not depend on the variable."""

    def __init__(self, before, after):
        self.before, self.after, self.known = before, after, {}
        self.checked, self.failures = 0, []

    def demand(self, holds, scenario, what):
        self.checked += 1
        if not holds:
            told = ", ".join("%s=%s" % (k, json.dumps(v)) for k, v in scenario.items())
            self.failures.append(plain("%s: %s" % (told, what)).replace("\n", " ")[:400])
            if len(self.failures) == MOST:
                raise Enough()
        return holds

    def pristine(self, **scenario):
        key = repr(sorted(scenario.items()))
        if key not in self.known:
            self.known[key] = run(self.before, **scenario)
        return self.known[key]

    def same(self, scenario, value, logs):
        """The patched text does here what the pristine one does."""
        want, have = self.pristine(**scenario), run(self.after, value=value, **scenario)
        full = dict(scenario, value=value)
        keys = ["error", "class", "disabled", "used", "kernel"] + ["events"] * logs
        if value not in ON or scenario["how"] == "utils":
            keys.append("returned")  # where the gate is on, what dispatch hands out may differ
        for key in keys:
            a, b = want.get(key), have.get(key)
            self.demand(a == b, full, "%s: was %s, is %s" % (key, a, b))

    def forced(self, scenario, cap=DEFAULT_CAP, bad_cap=False):
        """Enabled; the kernel told what it is told with NVLink; used up to the cap; announced once."""
        machine = {k: v for k, v in scenario.items() if k not in ("value", "env")}
        model = self.pristine(**dict(machine, how="class", nvlink=True, rank=0))
        have = run(self.after, **scenario)
        if not self.demand("error" not in have, scenario, "raised " + have.get("error", "")):
            return
        got = (have["class"], have["disabled"])
        self.demand(got == ("CustomAllreduce", False), scenario, "V1 must run; got %s, disabled: %s" % got)
        told = (model["kernel"], have["kernel"])
        self.demand(told[0] == told[1], scenario, "the kernel must be told %s, was told %s" % told)
        for size, with_nvlink in model["used"].items():
            want = with_nvlink and (42 * KiB if size == "packed" else size) <= cap
            used = (size, have["used"][size], want)
            self.demand(used[1] == want, scenario, "%s bytes: used is %s, must be %s" % used)
        self.announced(scenario, have, min(cap, model["max_size"] or cap), bad_cap)

    def announced(self, scenario, have, cap, bad_cap):
        """One warning from rank 0, before the kernel is set up; one more about a bad cap."""
        kinds = [e[0] for e in have["events"]]
        kernel = kinds.index("kernel") if "kernel" in kinds else -1
        said = [(i, e[2]) for i, e in enumerate(have["events"]) if e[0] == "log" and e[1] not in ("DEBUG", "INFO")]
        ours, others = [x for x in said if GATE in x[1]], [x[1] for x in said if GATE not in x[1]]
        if scenario.get("how") == "dispatch":  # V2's own no may be heard on the way
            others = [x for x in others if "V2" not in x]
        self.demand(not others, scenario, "the gate is open, and yet: %s" % others)
        want = 0 if scenario.get("rank") else 1 + bad_cap
        self.demand(len(ours) == want, scenario, "%d warning(s) about the gate, must be %d" % (len(ours), want))
        self.demand(all(i < kernel for i, _ in ours), scenario, "it warns after the kernel is set up")
        numbers = [set(re.findall(r"\d+", text)) for _, text in ours]
        wanted = {str(scenario.get("ws", 8)), str(cap)}
        named = not ours or any(wanted <= n for n in numbers)
        self.demand(named, scenario, "no warning names %s: %s" % (sorted(wanted), ours))

    # ---- the rows
    def sane(self, mode):
        """The stand-ins fit the pristine text: it says yes and no where SGLang does."""
        yes, no = (dict(nvlink=True), dict(ws=2)), (dict(), dict(nvlink=True, p2p=False))
        for scenario in yes + no:
            have = self.pristine(**dict(scenario, **mode))
            why = have.get("error") or "disabled is %s" % have.get("disabled")
            right = have.get("disabled") is (scenario in no)
            self.demand(right, dict(scenario, **mode), "the text before the patch cannot be judged here: " + why)
        told = self.pristine(nvlink=True, **mode)["kernel"]
        right = told == [True] or told == [None] and mode.get("native") is False
        self.demand(right, mode, "with NVLink the kernel was told %s" % told)

    def unforced(self, mode, values):
        """All rows in which the value, the machine or the platform keeps the gate shut."""
        shut = mode["how"] in ("v2", "utils") or mode["platform"] != "cuda"
        for machine in FORCED + (dict(rank=3),) + UNTOUCHED + REFUSED:
            scenario = dict(mode, **machine)
            scenario["env"] = dict(mode.get("env", {}), **machine.get("env", {}))
            for value in values:
                if value not in ON:
                    self.same(scenario, value, logs=value in OFF)
                elif shut or machine in UNTOUCHED + REFUSED:
                    self.same(scenario, value, logs=shut or machine in UNTOUCHED)

    def opened(self, mode):
        for value in ON:
            for machine in FORCED:
                self.forced(dict(machine, value=value, **mode))
        for rank in (1, 3, 7):
            self.forced(dict(mode, rank=rank, value="1"))

    def capped(self, mode):
        env = mode.get("env", {})
        for text in GOOD_CAPS + BAD_CAPS:
            bad = text in BAD_CAPS
            scenario = dict(mode, value="1", env=dict(env, **{CAP: str(text)}))
            self.forced(scenario, DEFAULT_CAP if bad else text, bad)
        self.forced(dict(mode, value="1", rank=3, env=dict(env, **{CAP: "abc"})))
        self.same(dict(mode, env=dict(env, **{CAP: "abc"})), None, logs=True)
        self.same(dict(mode, nvlink=True, env=dict(env, **{CAP: "16"})), "1", logs=True)

    def ways(self, text):
        """Every way to get at the class that this release has."""
        kernels = (True, False) if "use_vllm_custom_allreduce" in text else (True,)
        found = [dict(how="class", native=native) for native in kernels]
        if re.search(r"^def dispatch_custom_allreduce\b", text, re.M):
            switches = [{name: value} for name in V2_SWITCHES if name in text for value in "01"]
            found += [dict(how="dispatch", env=env) for env in [{}] + switches]
        return [dict(way, platform="cuda") for way in found]

    def all(self, text):
        """The whole table; text is the pristine one of the class."""
        for way in self.ways(text):
            self.sane({k: v for k, v in way.items() if k == "native"})
            self.unforced(way, OFF + UNCLEAR + ON if way["how"] == "class" else BRIEF)
            self.opened(way)
            self.capped(way)
            for platform in ("hip", "musa") if "is_musa" in text else ("hip",):
                self.unforced(dict(way, platform=platform), (None, "1"))
        if "max_size" in text:
            self.forced(dict(how="class", value="1", more={"max_size": 65536}))
        if MODULE + "_v2" in self.before:
            self.unforced(dict(how="v2", platform="cuda"), BRIEF)
        moved = self.before.get(MODULE + "_utils")
        if moved and "can_use_custom_all_reduce_with_nvlink" in moved.co_names:
            self.unforced(dict(how="utils", platform="cuda"), BRIEF)


# ---- is it this class that SGLang uses? -------------------------------------------------------------
GROUPS = "sglang.srt.distributed"
NEEDED = {"init_distributed_environment", "initialize_model_parallel"}


def imports(tree, package):
    """(module, name, name here) of every import in a file of that package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for a in node.names:
                yield a.name, "", a.asname or a.name
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            for a in node.names:
                yield ".".join(base + [node.module] * bool(node.module)), a.name, a.asname or a.name


def really_used(root, overlay):
    """Failures, as lines: up to 0.4.1.post6 SGLang carries the file and runs vLLM's class."""

    def parsed(path):
        return ast.parse(overlay[path] if path in overlay else read(root, path, binary=True))

    out = []
    if not calls_class(parsed(SRT + "distributed/parallel_state.py")):
        out.append("parallel_state.py uses neither CustomAllreduce nor dispatch_custom_allreduce of this module")
    found = list(imports(parsed(SRT + "model_executor/model_runner.py"), "sglang.srt.model_executor"))
    foreign = sorted({m for m, _, _ in found if (m + ".").startswith("vllm.distributed.")})
    if foreign:
        out.append("model_runner.py takes its groups from %s: SGLang does not run this class" % ", ".join(foreign))
    for module, name, _ in list(found):  # newer releases go through a module beside parallel_state
        path = (module + "." + name).replace(".", "/") + ".py"
        if module == GROUPS and os.path.exists(os.path.join(root, path)):
            found += imports(parsed(path), module)
    missing = NEEDED - {n for m, n, _ in found if (m + ".").startswith(GROUPS + ".")}
    if missing:
        out.append("model_runner.py does not get %s from %s" % (", ".join(sorted(missing)), GROUPS))
    return out


def calls_class(tree):
    """Does parallel_state call what it imports from this module?"""
    wanted = ("CustomAllreduce", "dispatch_custom_allreduce")
    ours = {here for module, name, here in imports(tree, GROUPS) if module == MODULE and name in wanted}
    called = {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    return ours & called


# ---- the run ----------------------------------------------------------------------------------------
def judge(root, staged, pristine):
    """(number of demands, failures)."""
    try:
        unused = really_used(root, staged)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
        unused = ["cannot tell whether SGLang uses this class: %s" % plain(e)]
    try:
        before, after = family(root, pristine), family(root, staged)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError) as e:
        return 1, unused + ["does not compile: %s: %s" % (type(e).__name__, plain(e))]
    if CAR not in staged:
        return 1, unused + ["the patch does not touch " + CAR]
    finder.prepared = standins(root)
    sys.addaudithook(guard)
    check = Check(before, after)
    try:
        check.all(pristine[CAR].decode("utf-8", "replace"))
    except Timeout:
        check.failures.append("the text does not come to an end")
    except Enough:
        check.failures[-1] = "and perhaps more: the rest was not asked"
    return check.checked + 3, unused + check.failures


def request():
    asked = json.loads(sys.stdin.buffer.read().decode("utf-8"))
    decode = lambda texts: {path: base64.b64decode(text, validate=True) for path, text in texts.items()}
    files, before = decode(asked["files"]), decode(asked["pristine"])
    if not isinstance(asked["root"], str) or not files or files.keys() != before.keys():
        raise ValueError('"root" must be a path, "files" and "pristine" the same files')
    return asked["root"], files, before


def alarm(*_):
    raise Timeout()


def main():
    out, sys.stdout, sys.stderr = sys.stdout, Said(), Said()
    os._exit = os.abort = lambda *_: guard("os.kill", ())
    sys.meta_path.insert(0, finder)
    logging.getLogger().addHandler(Capture())
    logging.getLogger().setLevel(logging.DEBUG)
    warnings.showwarning = lambda message, *a, **k: events.append(("log", "WARNING", plain(message)))
    if hasattr(signal, "setitimer"):  # seconds of processor time: a busy host is no endless loop
        signal.signal(signal.SIGPROF, alarm)
        signal.setitimer(signal.ITIMER_PROF, 20)
    try:
        asked, code = request(), 1
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        checked, failures, code = 0, ["bad request: %s: %s" % (type(e).__name__, e)], 2
    else:
        try:
            checked, failures = judge(*asked)
        except BaseException as e:
            checked, failures = 0, ["cannot be judged: %s: %s" % (type(e).__name__, plain(e))]
    json.dump({"ok": not failures, "checked": checked, "failures": failures[:MOST]}, out)
    out.write("\n")
    out.flush()
    return code if failures else 0


if __name__ == "__main__":
    sys.exit(main())
