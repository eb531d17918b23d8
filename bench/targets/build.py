"""Builds the target texts for sm_90a: NAME.cubin for every variant below, into build-targets/ of the repository.

  build.py [NAME...]      fails on any ptxas notice about wgmma (C75xx), on spills and on stack use
Environment: NVCC, TARGETS_BUILD (folder).
"""
import concurrent.futures
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.environ.get("TARGETS_BUILD", os.path.join(HERE, "..", "..", "build-targets"))

GEMM = {"gemm_%d_%s" % (n, b): ("gemm.cu", {"BN": n, "B_N_MAJOR": int(b == "nn")})
        for n in (128, 192, 256) for b in ("nt", "nn")}
FORWARD = {"forward_%d_%s" % (d, m): ("attention_forward.cu", {"D": d, "CAUSAL": int(m == "causal")})
           for d in (64, 128) for m in ("full", "causal")}
SPARSE = {"sparse_%d" % r: ("block_sparse_forward.cu", {"ROWS": r}) for r in (128, 64)}
BACKWARD = {"backward_%d_%s_%s_%d" % (d, m, o, rows): (
    "attention_backward.cu", {"D": d, "CAUSAL": int(m == "causal"), "ORDERED": int(o == "ordered"), "BM": rows})
    for m in ("full", "causal") for o in ("unordered", "ordered") for d, rows in ((128, 80), (128, 64), (64, 128))}
VARIANTS = {**GEMM, **FORWARD, **SPARSE, **BACKWARD}


def build(name):
    """Compiles one variant; returns (name, report, good)."""
    source, defines = VARIANTS[name]
    os.makedirs(OUT, exist_ok=True)
    command = [os.environ.get("NVCC", "nvcc"), "-cubin", "-std=c++17", "-gencode=arch=compute_90a,code=sm_90a",
               "-Xptxas", "-v", "-o", os.path.join(OUT, name + ".cubin")]
    command += ["-D%s=%s" % kv for kv in defines.items()] + [os.path.join(HERE, source)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    text = run.stdout + run.stderr
    notices = re.findall(r"\(C75\d+\)[^\n]*", text)
    stack = sum(int(n) for n in re.findall(r"(\d+) bytes stack frame", text))
    spills = sum(int(n) for n in re.findall(r"(\d+) bytes spill", text))
    good = run.returncode == 0 and not notices and stack == 0 and spills == 0
    registers = "/".join(re.findall(r"Used (\d+) registers", text))
    time = sum(float(t) for t in re.findall(r"Compile time = ([\d.]+)", text))
    report = "%s registers, %d bytes of stack, %d of spills, ptxas %.0f ms" % (registers, stack, spills, time)
    return name, report + "".join("\n  " + n for n in notices) + ("" if run.returncode == 0 else "\n" + text), good


def main():
    names = sys.argv[1:] or list(VARIANTS)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(build, names))
    for name, report, good in results:
        print("%-32s %s  %s" % (name, "ok    " if good else "FAILED", report))
    sys.exit(not all(good for _, _, good in results))


if __name__ == "__main__":
    main()
