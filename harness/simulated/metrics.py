"""Counters of the simulated engine and their Prometheus text, in vLLM's families and labels."""

import json
import time
from dataclasses import dataclass, field

REASONS = ("stop", "length", "abort", "error", "repetition")


@dataclass(slots=True)
class Counters:
    """What has happened since the start. ``accepted_per_position`` has one entry per draft position; empty = no MTP."""

    accepted_per_position: list[int]
    finished: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))
    prompt_tokens: int = 0
    generation_tokens: int = 0
    drafts: int = 0
    running: int = 0
    waiting: int = 0
    created: float = field(default_factory=time.time)

    def render(self, model_name: str) -> str:
        """The body of ``GET /metrics``."""
        quoted = json.dumps(model_name, ensure_ascii=False)
        base = f'engine="0",model_name={quoted}'
        lines: list[str] = []

        def gauge(name: str, text: str, value: float) -> None:
            lines.extend((f"# HELP vllm:{name} {text}", f"# TYPE vllm:{name} gauge"))
            lines.append(f"vllm:{name}{{{base}}} {float(value)}")

        def counter(name: str, text: str, samples: list[tuple[str, int]]) -> None:
            for suffix, kind in (("total", "counter"), ("created", "gauge")):
                lines.extend((f"# HELP vllm:{name}_{suffix} {text}", f"# TYPE vllm:{name}_{suffix} {kind}"))
                for labels, value in samples:
                    shown = float(value) if suffix == "total" else self.created
                    lines.append(f"vllm:{name}_{suffix}{{{labels}}} {shown!r}")

        about = "Start time of the process since unix epoch in seconds."
        lines.extend((f"# HELP process_start_time_seconds {about}", "# TYPE process_start_time_seconds gauge"))
        lines.append(f"process_start_time_seconds {self.created!r}")
        if self.accepted_per_position:
            depth = len(self.accepted_per_position)
            accepted = sum(self.accepted_per_position)
            positions = [(f'{base},position="{k}"', n) for k, n in enumerate(self.accepted_per_position)]
            counter("spec_decode_num_drafts", "Number of spec decoding drafts.", [(base, self.drafts)])
            counter("spec_decode_num_draft_tokens", "Number of draft tokens.", [(base, self.drafts * depth)])
            counter("spec_decode_num_accepted_tokens", "Number of accepted tokens.", [(base, accepted)])
            counter("spec_decode_num_accepted_tokens_per_pos", "Accepted tokens per draft position.", positions)
        gauge("num_requests_running", "Number of requests in model execution batches.", self.running)
        gauge("num_requests_waiting", "Number of requests waiting to be processed.", self.waiting)
        counter("prefix_cache_queries", "Prefix cache queries, in terms of number of queried tokens.", [(base, 0)])
        counter("prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.", [(base, 0)])
        counter("prompt_tokens", "Number of prefill tokens processed.", [(base, self.prompt_tokens)])
        counter("generation_tokens", "Number of generation tokens processed.", [(base, self.generation_tokens)])
        reasons = [(f'engine="0",finished_reason="{r}",model_name={quoted}', n) for r, n in self.finished.items()]
        counter("request_success", "Count of successfully processed requests.", reasons)
        return "\n".join(lines) + "\n"
