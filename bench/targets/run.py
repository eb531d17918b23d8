"""Checks and times the target texts against cuBLAS and cuDNN (through torch).

  run.py                  everything: each part in a process of its own with a time limit; table last, JSON into $OUT
  run.py check VARIANT... run.py time gemm|ragged|forward|sparse|backward [VARIANT[/parameter]...]
The rivals alternate launch by launch in one process; before every launch 256 MB are rewritten (L2) and a spin
follows, so that the launch is queued; medians of ROUNDS CUDA-event times.
"""
import json
import os
import statistics
import subprocess
import sys
import time

from build import BACKWARD, FORWARD, GEMM, OUT, SPARSE, VARIANTS

HERE = os.path.dirname(os.path.abspath(__file__))
PEAK_TFLOPS = 990  # dense bf16; a rate above it means that work was skipped
SPIN = 4_000_000  # cycles, 2 ms: longer than the host needs for any launch, autograd's included
ROUNDS = int(os.environ.get("ROUNDS", "21"))
LENGTHS = [int(s) for s in os.environ.get("LENGTHS", "2048,4096,8192,16384").split(",")]
RAGGED = [(4096, n, n) for n in range(4096, 16385, 1000)]
CUBES = [(n, n, n) for n in (4096, 8192)]


def record(kind, data):
    if os.environ.get("OUT"):
        with open(os.path.join(os.environ["OUT"], "targets.jsonl"), "a") as f:
            f.write(json.dumps({"kind": kind, **data}) + "\n")


def deviation(case, name, outputs, rival):
    import cases
    if "samples" in case:
        return max(cases.error(outputs[0][rows, head], ref) for rows, head, ref in case["samples"][name])
    return max(cases.error(x, y) for x, y in zip(outputs, rival))


def measure(case):
    """Poisons every output, times, and compares what the timed launches themselves left."""
    import torch
    flush = torch.empty(256 << 18, dtype=torch.int32, device="cuda")
    names = list(case["runs"])
    for name in names:
        case["runs"][name]()
        case["runs"][name]()
    events = []
    for i in range(ROUNDS):
        for name in names[i % len(names):] + names[:i % len(names)]:  # no run always follows the same one
            for x in case["outputs"].get(name, []):
                x.fill_(float("nan"))
            flush.zero_()
            torch.cuda._sleep(SPIN)
            a, b = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            a.record()
            case["runs"][name]()
            b.record()
            events.append((name, a, b))
        torch.cuda.synchronize()
        for name, outputs in case["outputs"].items():
            if any(bool(torch.isnan(x).any()) for x in outputs):
                raise SystemExit("%s, %s: round %d left elements unwritten" % (case["label"], name, i))
    rival_outputs = case["rival"]() if "rival" in case else None
    good, rival = True, None
    for name in names:
        ms = sorted(a.elapsed_time(b) for n, a, b in events if n == name)
        median = statistics.median(ms)
        rival = rival or median
        tflops = case["flops"] / median / 1e9
        off = deviation(case, name, case["outputs"][name], rival_outputs) if name in case["outputs"] else None
        good &= (off is None or off < 1e-2) and tflops < PEAK_TFLOPS
        row = {"case": case["label"], "run": name, "ms": median, "p20": ms[len(ms) // 5], "p80": ms[4 * len(ms) // 5],
               "tflops": tflops, "ratio": rival / median, "deviation": off}
        record("time", row)
        print("%-46s %-40s %8.4f ms %6.1f TFLOPS  %.3f  %s" % (
            case["label"], name, median, tflops, rival / median, "" if off is None else "%.1e" % off), flush=True)
    if not good:
        raise SystemExit("%s: wrong results, or faster than the chip" % case["label"])


def parse(words, defaults, default_parameter):
    named = [w.split("/") for w in words] or [[v] for v in defaults]
    return [(w[0], int(w[1]) if len(w) > 1 else default_parameter) for w in named]


def child(argv):
    import torch
    import cases
    torch.backends.cuda.matmul.allow_tf32 = False
    seed = int(os.environ.get("SEED", time.time_ns() % 100000))
    torch.manual_seed(seed)
    if argv[0] == "check":
        good = True
        for v in argv[1:]:
            family = VARIANTS[v][0]
            result = {"gemm.cu": cases.check_gemm, "attention_forward.cu": cases.check_forward,
                      "block_sparse_forward.cu": cases.check_sparse, "attention_backward.cu": cases.check_backward}[family](v)
            record("check", {**result, "seed": seed})
            good &= result["ok"]
        return 0 if good else 1
    part, words = argv[1], argv[2:]
    if part == "gemm":
        todo = cases.time_gemm(parse(words, ["gemm_256_nt", "gemm_256_nn"], 8), CUBES)
    elif part == "ragged":
        todo = cases.time_gemm(parse(words, GEMM, 8), RAGGED)
    elif part == "forward":
        todo = cases.time_forward(words or list(FORWARD), LENGTHS)
    elif part == "sparse":
        todo = cases.time_sparse(words or list(SPARSE), 32768)
    elif part == "backward":
        todo = cases.time_backward(parse(words, BACKWARD, 0), LENGTHS)
    else:
        raise SystemExit("unknown part " + part)
    for case in todo:
        measure(case)
    return 0


def main():
    limit = int(os.environ.get("LIMIT", "100"))
    jobs = [["check", v] for v in VARIANTS] + [["time", p] for p in ("gemm", "ragged", "forward", "sparse", "backward")]
    failed = []
    for job in jobs:
        try:
            rc = subprocess.run([sys.executable, os.path.join(HERE, "run.py"), *job], timeout=limit).returncode
        except subprocess.TimeoutExpired:
            rc = "no answer within %d s" % limit
        if rc != 0:
            failed.append("%s: %s" % (" ".join(job), rc))
    print("all parts done" if not failed else "FAILED: " + "; ".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(child(sys.argv[1:]) if len(sys.argv) > 1 else main())
