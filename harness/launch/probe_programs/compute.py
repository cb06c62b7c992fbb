# mypy: ignore-errors
"""Multiplies matrices of small integers on one device and tells the sha256 of each product. Runs inside an image.

Every product and every partial sum is an integer that float16 holds exactly, so one right answer exists.
Arguments: device (xpu or cpu), size, rounds, seed.
"""

import hashlib
import json
import signal
import sys

import torch


def matrix(size, factor, seed, device, dtype):
    row = torch.arange(size, dtype=torch.int64).reshape(-1, 1)
    column = torch.arange(size, dtype=torch.int64).reshape(1, -1)
    return ((row * factor + column * (factor + 4) + row * column + seed) % 3 - 1).to(dtype).to(device)


def main():
    kind, size, rounds, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    count = torch.xpu.device_count() if kind == "xpu" else 1
    name = torch.xpu.get_device_name(0) if kind == "xpu" and count else kind
    digests = {}
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        # bfloat16 holds integers up to 256 only, so its matrices are smaller.
        side = min(size, 256) if dtype is torch.bfloat16 else size
        seen = set()
        for _ in range(rounds):
            left, right = (matrix(side, factor, seed, kind, dtype) for factor in (7, 11))
            product = (left @ right).to(torch.int32).cpu().contiguous()
            seen.add(hashlib.sha256(product.numpy().tobytes()).hexdigest())
        digests[str(dtype).removeprefix("torch.")] = sorted(seen)
    sys.stdout.write(json.dumps({"devices": count, "name": name, "torch": torch.__version__, "digests": digests}))


# The first process of a container has no default for the stop signal.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
main()
