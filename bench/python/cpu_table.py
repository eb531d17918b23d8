"""Operators on one thread of the CPU beside their rivals: PyTorch, copies and reads of memory, or Tegula's own
attention and gemm; a table in Markdown.

    python bench/python/cpu_table.py [GROUP...] [--rounds N] [--json FILE] [--page docs/performance-cpu.md]

Each row first compares its result with a formula in PyTorch. Then both sides run in turns, and the least of many short
runs of each counts, in processor time of the thread, because other work shares the machine. The ratio is the rate of
the operator by that of its rival: of operations where these are counted, of bytes where memory is the rival, of calls
else. Inputs are random.
"""

import argparse
import json
import os
import pathlib
import platform
import time

os.environ["TEGULA_NUM_THREADS"] = "1"  # read when the library is loaded

import cpu_rows
import torch

SECONDS, MOST_ROUNDS = 1.5, 200


def once(call):
    begin = time.thread_time()
    call()
    return time.thread_time() - begin


def least(calls, rounds):
    """The least time of each call, in seconds. They take turns until time or rounds are spent."""
    best = [once(call) for call in calls]
    best = [once(call) for call in calls]  # the first calls compile, and touch their memory
    count = rounds or min(MOST_ROUNDS, max(5, int(SECONDS / sum(best))))
    for _ in range(count):
        best = [min(known, once(call)) for known, call in zip(best, calls)]
    return best


def error(results, expected):
    """The largest difference by the largest magnitude, of the worst result."""
    worst = 0.0
    for result, wanted in zip(results, expected):
        difference = (result.double() - wanted.double()).abs().max()
        worst = max(worst, float(difference / wanted.double().abs().max().clamp(min=1e-30)))
    return worst


def measured(row, rounds):
    found = error(*row.check())
    if not found <= row.tolerance:
        raise AssertionError(f"{row.name}: differs from its formula by {found:.2g} of the largest element")
    ours, rival = least((row.call, row.rival), rounds)
    ratio = row.work / ours / (row.rival_work / rival)
    return {"group": row.group, "name": row.name, "ms": ours * 1e3, "rival_ms": rival * 1e3, "ratio": ratio,
            "aim": row.aim, "work": row.work, "error": found}  # fmt: skip


PAGE = """# Operators on one thread of a CPU

Written by `bench/python/cpu_table.py --page`; do not edit.

Machine: {machine}, {processors} processors, of which one thread runs; PyTorch {torch}. While this was measured, {load:.0f} threads
on the mean wanted to run. Each result is compared with a formula in PyTorch first. Then both sides run in turns, and the
least of many runs of each counts, in processor time. The ratio is the rate of the operator by that of its rival: of
operations where these are counted, of bytes where memory is the rival, of calls else. Inputs are random. What all
processors do together is in [performance](performance.md), what was tried for speed in the [log](performance-log.md),
which also has [rows by all threads](performance-log.md#rows-by-all-threads-of-a-cpu-scans-and-losses-in-place-lanes-that-exchange-2026-11-28).
"""


def machine():
    """The name of the processor."""
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines() if os.path.exists("/proc/cpuinfo") else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def page(tables):
    facts = dict(machine=machine(), processors=os.cpu_count(), torch=torch.__version__, load=os.getloadavg()[2])
    return PAGE.format(**facts) + "".join(f"\n{table}\n" for table in tables)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", help=f"of {', '.join(cpu_rows.GROUPS)}; all by default")
    parser.add_argument("--rows", default="", help="only rows whose names contain this")
    parser.add_argument("--rounds", type=int, default=0, help="of each row; chosen by its time unless given")
    parser.add_argument("--json", help="writes the rows there too")
    parser.add_argument("--page", help="writes the tables there too, as a page of the documentation")
    config = parser.parse_args()
    for name in config.groups:
        if name not in cpu_rows.GROUPS:
            parser.error(f"no group {name!r}; there are {', '.join(cpu_rows.GROUPS)}")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows, tables = [], []
    for name in config.groups or cpu_rows.GROUPS:
        rival, make = cpu_rows.GROUPS[name]
        tables.append(f"| {name}, beside {rival} | ms | rival, ms | ratio | aim |\n|---|---|---|---|---|")
        print("\n" + tables[-1], flush=True)
        for row in make():
            if config.rows not in row.name:
                continue
            row.group = name
            rows.append(measured(row, config.rounds))
            line = "| {name} | {ms:.3f} | {rival_ms:.3f} | {ratio:.2f} | {aim} |".format(**rows[-1])
            tables[-1] += "\n" + line
            print(line, flush=True)
    if config.json:
        with open(config.json, "w") as file:
            json.dump(rows, file, indent=1)
    if config.page:
        pathlib.Path(config.page).write_text(page(tables))


if __name__ == "__main__":
    main()
