# mypy: ignore-errors
"""Adds up integers over several processes, one on each device, and tells the sha256 of what each got. Runs in an image.

Arguments: device (xpu or cpu), processes, length, rounds, seed. Backend: xccl or ccl on xpu, gloo on cpu.
"""

import hashlib
import json
import os
import signal
import sys
import tempfile

import torch
import torch.distributed as dist


def backend_of(kind):
    if kind == "cpu":
        return "gloo"
    if hasattr(dist, "is_xccl_available") and dist.is_xccl_available():
        return "xccl"
    import oneccl_bindings_for_pytorch  # noqa: F401

    return "ccl"


def work(kind, rank, processes, length, rounds, seed, meeting):
    device = torch.device("cpu")
    if kind == "xpu":
        device = torch.device("xpu", rank)
        torch.xpu.set_device(device)
    dist.init_process_group(backend_of(kind), init_method=f"file://{meeting}", rank=rank, world_size=processes)
    seen = set()
    for _ in range(rounds):
        mine = ((torch.arange(length, dtype=torch.int64) * (rank + 3) + seed) % 61).to(torch.float32).to(device)
        dist.all_reduce(mine)
        seen.add(hashlib.sha256(mine.to(torch.int32).cpu().contiguous().numpy().tobytes()).hexdigest())
    dist.barrier()
    dist.destroy_process_group()
    return sorted(seen)


def main():
    kind, processes, length, rounds, seed = sys.argv[1], *map(int, sys.argv[2:6])
    with tempfile.TemporaryDirectory() as folder:
        meeting = os.path.join(folder, "meeting")
        children = []
        for rank in range(processes):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    found = work(kind, rank, processes, length, rounds, seed, meeting)
                    with open(os.path.join(folder, f"{rank}.json"), "w") as file:
                        json.dump(found, file)
                    code = 0
                except BaseException as error:
                    sys.stderr.write(f"rank {rank}: {type(error).__name__}: {error}\n")
                finally:
                    sys.stderr.flush()
                    os._exit(code)
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        if any(codes):
            sys.exit(f"ranks ended with {codes}")
        digests = [json.load(open(os.path.join(folder, f"{rank}.json"))) for rank in range(processes)]
    sys.stdout.write(json.dumps({"backend": backend_of(kind), "torch": torch.__version__, "digests": digests}))


# The first process of a container has no default for the stop signal.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
main()
