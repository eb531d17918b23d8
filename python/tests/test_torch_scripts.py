"""The example that trains native sparse attention, and the table of its stages, at a small size."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tegula.torch")

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(script, *arguments):
    """On the interpreter: at this size compilers take most of the time, and the kernels are others' to test."""
    command = [sys.executable, str(ROOT / script), *map(str, arguments)]
    alone = {"OMP_NUM_THREADS": "1", "TEGULA_TARGET": "interpreter", "TEGULA_INTERPRETER_ORDERS": "1"}
    environment = {**os.environ, **alone}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_trains_generates_and_times_what_was_selected(tmp_path):
    small = ("--device", "cpu", "--block-size", 8)
    text = tmp_path / "text.txt"
    text.write_bytes((ROOT / "data" / "shakespeare.txt").read_bytes()[:2048])
    out = run(
        "examples/python/train_nsa_lm.py", *small, "--text", text, "--steps", 8, "--batch", 1, "--tokens", 64, "--width", 32,
        "--heads", 2, "--kv-heads", 1, "--layers", 1, "--window", 8, "--generate", 4, "--out", tmp_path,
    )  # fmt: skip
    losses = [line.split(",") for line in (tmp_path / "losses.csv").read_text().split()]
    assert losses[0] == ["dense", "sparse"] and len(losses) == 9
    assert all(float(losses[-1][column]) < float(losses[1][column]) for column in range(2))
    assert "tokens/s" in out and len((tmp_path / "generated.txt").read_bytes()) >= 68
    chosen = torch.load(tmp_path / "selections.pt")
    assert chosen.shape == (1, 64, 1, 3) and int(chosen[0, -1].max()) == 7
    run(
        "bench/python/nsa_stages.py", *small, "--tokens", 96, "--heads", 2, "--kv-heads", 1, "--dim", 16, "--length", 4,
        "--stride", 2, "--count", 3, "--window", 8, "--rounds", 1, "--selections", tmp_path / "selections.pt",
        "--out", tmp_path,
    )  # fmt: skip
    rows = {row["stage"]: row for row in json.loads((tmp_path / "stages.json").read_text())["rows"]}
    assert len(rows) == 9 and all(row["forward_ms"] > 0 for row in rows.values())
    assert all(("backward_ms" in row) == (stage != "score + select") for stage, row in rows.items())
    assert 0 < rows["selected, captured"]["overlap"] <= 1
    assert "selected, random" in (tmp_path / "stages.md").read_text()
    assert (tmp_path / "stages.svg").read_text().startswith("<svg")


def test_a_hybrid_of_recurrent_and_sparse_layers_trains(tmp_path):
    text = tmp_path / "text.txt"
    text.write_bytes((ROOT / "data" / "shakespeare.txt").read_bytes()[:2048])
    out = run(
        "examples/python/train_hybrid_lm.py", "--device", "cpu", "--text", text, "--steps", 4, "--batch", 1, "--tokens", 32,
        "--width", 16, "--heads", 2, "--kv-heads", 1, "--layers", 4, "--block-size", 8, "--blocks", 2, "--window", 8,
        "--out", tmp_path,
    )  # fmt: skip
    losses = [line.split(",") for line in (tmp_path / "losses.csv").read_text().split()]
    assert losses[0] == ["dense", "hybrid"] and len(losses) == 5
    assert all(float(losses[-1][column]) < float(losses[1][column]) for column in range(2))
    assert "hybrid" in out and "tokens/s" in out
    assert (tmp_path / "curves.svg").read_text().startswith("<svg")
