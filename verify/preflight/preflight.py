"""What one rank does in `sgpatch preflight`.

Started by torch.distributed.run, once a rank, under the interpreter and the
environment that a server would have. It lets SGLang itself set up a
tensor-parallel group, and holds the all-reduce that SGLang picked against the
right numbers and against NCCL. It judges nothing: what was seen goes to
standard output at once, a line of JSON at a time, so that a rank that hangs or
dies has said where. It leaves no file.

    python -c SCRIPT {"mark", "sizes", "repeat", "calls", "until", "nccl_only"}
"""
import faulthandler
import json
import logging
import os
import signal
import sys
import time

TASK = json.loads(sys.argv[1])
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def say(kind, **what):
    """One write of less than PIPE_BUF is whole, whoever else writes."""
    line = TASK["mark"] + " " + json.dumps(dict(what, kind=kind, rank=RANK)) + "\n"
    if len(line) < 4096:
        os.write(1, line.encode())


def phase(name, **where):
    """Says what is about to be done, and counts as its name if it never ends."""
    say("phase", name=name, **where)


def outlive_nobody():
    """A rank ends when its launcher does, and when the time is up: a collective
    that hangs lets no Python code run, so the watch is a thread of C."""
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() == 1:
        os._exit(1)
    faulthandler.dump_traceback_later(max(1, TASK["until"] - time.time()), exit=True)


class Keep(logging.Handler):
    """SGLang's own warnings: why it did not pick what was hoped for."""

    def emit(self, record):
        if record.levelno >= logging.WARNING:
            say("log", text=record.getMessage()[:600])


def share_devices(devices):
    """Several ranks on one GPU: SGLang's peer test counts a GPU for each rank.
    Memory of the same device needs no peer access; between others the driver is
    asked."""
    import torch

    def can_p2p(rank, world_size):
        mine = rank % devices
        others = {other % devices for other in range(world_size)} - {mine}
        return all(torch.cuda.can_device_access_peer(mine, other) for other in others)

    for name, module in list(sys.modules.items()):
        if name.startswith("sglang.srt.distributed.device_communicators.") and hasattr(module, "can_p2p"):
            module.can_p2p = can_p2p


def sglang_group(device, devices):
    """The tensor-parallel group as SGLang makes it. With several ranks on a GPU,
    which NCCL refuses, only the all-reduce that SGLang picks for such a group.
    Returns (what all-reduces or None, the CPU's group, NCCL's or None)."""
    import torch.distributed as dist
    from sglang.srt.distributed import parallel_state

    if WORLD <= devices:
        parallel_state.init_distributed_environment(world_size=WORLD, rank=RANK, distributed_init_method="env://", local_rank=RANK, backend="nccl")
        group = parallel_state.init_model_parallel_group([list(range(WORLD))], RANK, "nccl", use_custom_allreduce=True, group_name="tp")
        return group.ca_comm, group.cpu_group, group.device_group

    from sglang.srt.distributed.device_communicators import custom_all_reduce

    dist.init_process_group("gloo")
    cpu = dist.new_group(backend="gloo")
    share_devices(devices)
    pick = getattr(custom_all_reduce, "dispatch_custom_allreduce", None)
    cls = pick(group=cpu, device=device) if pick else custom_all_reduce.CustomAllreduce
    share_devices(devices)  # another class may have been imported
    return cls(group=cpu, device=device), cpu, None


def nccl_group():
    import torch.distributed as dist

    dist.init_process_group("nccl")
    return None, dist.new_group(backend="gloo"), dist.group.WORLD


def values(n, rank, turn):
    """Small whole numbers, exact in bfloat16, as are their sums over 8 ranks."""
    import torch

    i = torch.arange(n, device="cuda", dtype=torch.int64)
    return ((i * 7 + i // 64 * 3 + rank * 13 + turn * 5) % 17 - 8).to(torch.bfloat16)


def compare(got, turn, size, how):
    """Every element, bit for bit. Zero has one sign here."""
    import torch

    want = sum(values(got.numel(), r, turn).to(torch.int32) for r in range(WORLD)).to(torch.bfloat16)
    wrong = got.view(torch.int16) != want.view(torch.int16)
    count = int(wrong.sum())
    fact = dict(bytes=size, how=how, turn=turn, wrong=count)
    if count:
        at = int(wrong.nonzero()[0])
        fact.update(at=at, got=repr(float(got[at])), want=repr(float(want[at])), nan=int(got.isnan().sum()))
    say("numbers", **fact)


class Poison:
    """Fills every new output with NaN, inside a CUDA graph at every replay, too:
    a kernel that launches nothing, or writes a part, leaves some behind."""

    def __enter__(self):
        import torch

        self.real = torch.empty_like

        def poisoned(*a, **k):
            t = self.real(*a, **k)
            return t.fill_(float("nan")) if t.is_floating_point() else t

        torch.empty_like = poisoned

    def __exit__(self, *_):
        import torch

        torch.empty_like = self.real


def numbers(ca, size, barrier):
    import torch

    n = size // 2
    with Poison():
        for turn in range(3):
            phase("eager", bytes=size)
            barrier()
            compare(ca.custom_all_reduce(values(n, RANK, turn)), turn, size, "eager")
        phase("capture", bytes=size)
        static, graph = values(n, RANK, 0), torch.cuda.CUDAGraph()
        with ca.capture():
            with torch.cuda.graph(graph):
                got = ca.custom_all_reduce(static)
        for turn in range(3, 6):
            phase("graph", bytes=size)
            static.copy_(values(n, RANK, turn))
            torch.cuda.synchronize()
            barrier()
            graph.replay()
            torch.cuda.synchronize()
            compare(got, turn, size, "graph")


def clock(name, size, record, barrier, cpu):
    """Times calls in one graph. Every number is microseconds a call of the
    slowest rank in one replay."""
    import torch
    import torch.distributed as dist

    phase("time " + name, bytes=size)
    graph = record()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    took = []
    for turn in range(3 + TASK["repeat"]):
        torch.cuda.synchronize()
        barrier()
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        if turn >= 3:
            took.append(start.elapsed_time(end) * 1000 / TASK["calls"])
    worst = torch.tensor(took, dtype=torch.float64)
    dist.all_reduce(worst, op=dist.ReduceOp.MAX, group=cpu)
    if RANK == 0:
        say("time", name=name, bytes=size, us=[round(float(t), 3) for t in worst])


def times(ca, nccl, size, barrier, cpu):
    import torch
    import torch.distributed as dist

    x = torch.ones(size // 2, dtype=torch.bfloat16, device="cuda")

    def custom():
        graph = torch.cuda.CUDAGraph()
        with ca.capture():
            with torch.cuda.graph(graph):
                for _ in range(TASK["calls"]):
                    ca.custom_all_reduce(x)
        return graph

    def plain():
        dist.all_reduce(x.clone(), group=nccl)  # NCCL connects at its first call, and not in a graph
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(TASK["calls"]):
                dist.all_reduce(x, group=nccl)
        return graph

    if ca is not None and ca.should_custom_ar(x):
        clock("custom", size, custom, barrier, cpu)
    if nccl is not None:
        clock("nccl", size, plain, barrier, cpu)


def machine(devices):
    import torch

    gpus = []
    for i in range(devices):
        p = torch.cuda.get_device_properties(i)
        gpus.append(dict(name=p.name, capability="%d.%d" % (p.major, p.minor), memory=p.total_memory))
    peer = [[i == j or torch.cuda.can_device_access_peer(i, j) for j in range(devices)] for i in range(devices)]
    try:
        nccl = ".".join(map(str, torch.cuda.nccl.version()))
    except Exception:
        nccl = ""
    say("machine", gpus=gpus, peer=peer, torch=torch.__version__, cuda=torch.version.cuda or "", nccl=nccl)


def main():
    outlive_nobody()
    phase("import torch")
    import torch
    import torch.distributed as dist

    devices = torch.cuda.device_count()
    if devices == 0 or WORLD < 2:
        say("impossible", why="torch sees no GPU" if devices == 0 else "one rank has nothing to reduce: two GPUs are needed, or --ranks")
        return
    device = torch.device("cuda", RANK % devices)
    torch.cuda.set_device(device)
    if RANK == 0:
        machine(devices)
    if not TASK["nccl_only"]:
        phase("import sglang")
        import sglang.srt.distributed.parallel_state  # noqa: F401

        logging.getLogger("sglang").addHandler(Keep())
    phase("set up")
    ca, cpu, nccl = nccl_group() if TASK["nccl_only"] else sglang_group(device, devices)

    def barrier():
        dist.barrier(group=cpu)

    if not TASK["nccl_only"]:
        say("class", name=type(ca).__name__ if ca is not None else "", disabled=bool(getattr(ca, "disabled", True)), full_nvlink=getattr(ca, "full_nvlink", None))
        if ca is None or ca.disabled:
            ca = None
    for size in TASK["sizes"]:
        if ca is not None:
            used = bool(ca.should_custom_ar(torch.empty(size // 2, dtype=torch.bfloat16, device="cuda")))
            say("used", bytes=size, used=used)
            if used:
                numbers(ca, size, barrier)
    for size in TASK["sizes"] if WORLD <= devices else ():  # on a shared GPU time is its scheduler's
        times(ca, nccl, size, barrier, cpu)
    say("done")
    torch.cuda.synchronize()
    barrier()
    faulthandler.cancel_dump_traceback_later()
    os._exit(0)  # tearing down is not what is tested, and can hang


if __name__ == "__main__":
    try:
        main()
    except BaseException as e:
        say("error", text=("%s: %s" % (type(e).__name__, e))[:600])
        raise
