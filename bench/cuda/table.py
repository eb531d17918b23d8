"""Joins what gpu-check left in a folder: summary.json there, and a table."""
import glob
import json
import os
import sys


def sample_of(error):
    """JSON has no number for the error of an element that was not written."""
    return "WRONG" if error is None else "WRONG %.3g" % error


def lines(folder, name):
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return [json.loads(line) for line in file]


def failures(folder):
    """Names of failed tests, whichever process ran them."""
    names = []
    for path in sorted(glob.glob(os.path.join(folder, "tests_*.json"))):
        with open(path) as file:
            suites = json.load(file)["testsuites"]
        names += [suite["name"] + "." + test["name"] for suite in suites for test in suite["testsuite"] if "failures" in test]
    return names


def main(folder):
    rivals = {line["workload"]: line for line in lines(folder, "rivals.jsonl")}
    rows = lines(folder, "bench.jsonl")
    for row in rows:
        rival = rivals.get(row["workload"], {})
        if "ms" in row and "ms" in rival:
            row["rival_ms"], row["ratio"] = rival["ms"], rival["ms"] / row["ms"]
    wrong = failures(folder)
    with open(os.path.join(folder, "summary.json"), "w") as file:
        json.dump({"steps": lines(folder, "steps.jsonl"), "failed_tests": wrong, "workloads": rows}, file, indent=1)
    for name in wrong[:20]:
        print("failed: " + name)
    print("%-44s %10s %8s %8s  %s" % ("workload", "ms", "TFLOPS", "ratio", "sample"))
    for row in rows:
        if "failure" in row:
            print("%-44s %s" % (row["workload"], row["failure"][:110]))
            continue
        ratio = "%.3f" % row["ratio"] if "ratio" in row else "-"
        print("%-44s %10.4f %8.1f %8s  %s" % (row["workload"], row["ms"], row["tflops"], ratio,
                                             "right" if row["right"] else sample_of(row["error"])))


main(sys.argv[1])
