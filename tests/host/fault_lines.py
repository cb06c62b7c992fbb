"""Lines of kernel logs: faults of every kind that the contract names, and lines that only look like one."""

XE = "xe 0000:03:00.0: [drm] "
FAULTS = {
    XE + "Tile0: GT0: Fault response: Unsuccessful -ENOENT": "fault response",
    XE + "Tile0: GT0: Engine memory CAT error [18]: class=ccs, logical_mask: 0x1, guc_id=11": "cat error",
    XE + "Tile0: GT0: Engine reset: engine_class=bcs, logical_mask: 0x1, guc_id=2, state=0x3": "engine reset",
    XE + "*ERROR* Tile0: GT0: GuC engine reset request failed on 0:0 because 0x00000000": "engine reset",
    XE + "Tile0: GT0: trying reset from guc_exec_queue_timedout_job [xe]": "gt0: trying reset",
    XE + "Tile0: GT0: reset started": "gt0: reset",
    XE + "GT1 reset queued": "gt1 reset",
    XE + "gt reset done": "gt reset",
    XE + "GPU reset requested": "gpu reset",
    XE + "Xe device coredump has been created": "coredump",
    XE + "Check your /sys/class/drm/card0/device/devcoredump/data": "coredump",
    XE + "Tile0: GT0: Timedout job: seqno=98, lrc_seqno=98, guc_id=28, flags=0x20": "timedout job",
    XE + "*ERROR* Tile0: GT0: TLB invalidation fence timed out, seqno=5": "timed out",
    XE + "Tile0: GT0: CCS0 is hung": "hung",
    XE + "*ERROR* CRITICAL: Xe has declared device 0000:03:00.0 as wedged.": "wedged",
    XE + "device lost from bus!": "device lost",
    "[drm] GuC submission timed out": "timed out",
    "xe 0000:83:00.0: wedged": "wedged",
    "WARNING: CPU: 3 PID: 812 at drivers/gpu/drm/xe/xe_guc_submit.c:1020": "drivers/gpu/drm/xe/",
    "watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [VLLM::Worker:812]": "soft lockup",
    "watchdog: Watchdog detected hard LOCKUP on cpu 5": "hard lockup",
}
"""At least one line for each alternative of the pattern"""
FIRST = next(iter(FAULTS))
BENIGN = XE + "Xe device coredump has been deleted."
NEAR = [
    BENIGN,
    XE + "Tile0: GT0: Using GuC firmware from xe/bmg_guc_70.bin version 70.44.1",
    XE + "Found battlemage (device ID e223) discrete display version 14.01 stepping B0",
    XE + "VISIBLE VRAM: 0x0000380000000000, 0x0000000800000000",
    XE + "Tile0: GT0: shunting the queue",  # hung is a word of its own
    XE + "changing the reset method",
    "amdgpu 0000:c2:00.0: ring gfx_0.0.0 timeout, signaled seq=1",
    "nvme nvme0: I/O 5 QID 3 timeout, reset controller",
    "usb 1-1: device descriptor read/64, error -110, timed out",
    "INFO: task python3:812 blocked for more than 122 seconds; is it hung",
    "pcieport 0000:00:01.0: AER: Corrected error received",
    "docker0: port 1(vetha2d7e94) entered disabled state",
    "drivers/gpu/drm/i915/gt/intel_reset.c: wedged",
    "systemd-coredump[812]: Process 811 (python3) dumped core.",
]
