#!/usr/bin/env python3
"""check_one_file.py ROOT COMPILER: examples/00_in_one_file.cpp is what it says: at most 360 code
lines, none over 80 columns, no library but the standard one, and the names of the tree; the lines
by which docs/TOUR.md answers questions about it are there. It is compiled as its head says; what it
prints is examples.00_in_one_file's test."""
import pathlib
import re
import subprocess
import sys
import tempfile

MOST_LINES, MOST_COLUMNS = 360, 80
FOLDERS = ("core", "autograd", "capture", "data", "nn", "ops", "profiler", "train")
# What the file has and the tree does not: the net and its training are the reader's own.
OWN_NAMES = {"Net", "train", "of_first", "log_sum_exp", "uniform"}


def main(root, compiler):
    source = root / "examples/00_in_one_file.cpp"
    text = source.read_text()
    lines = text.splitlines()
    wrong = []
    code = [line for line in lines if not re.match(r"\s*(//|$)", line)]
    if len(code) > MOST_LINES:
        wrong.append(f"{len(code)} code lines; at most {MOST_LINES}")
    wrong += [f"line {n} has {len(line)} columns; at most {MOST_COLUMNS}"
              for n, line in enumerate(lines, 1) if len(line) > MOST_COLUMNS]
    wrong += [f"includes {name}: not of the standard library"
              for name in re.findall(r"#include (\S+)", text) if not re.fullmatch(r"<\w+>", name)]

    names = set(re.findall(r"\b(?:struct|using) (\w+)(?= [{=])", text))
    names |= set(re.findall(r"^[A-Za-z][\w:<>&* ]* [&*]?(\w+)\(", "\n".join(code), re.M))
    names |= set(re.findall(r"^  [A-Za-z][\w:<>&* ]* [&*]?(\w+)\(.*\{", "\n".join(code), re.M))
    names -= {"main", "for", "if", "return"}
    tree = "\n".join(path.read_text() for folder in FOLDERS
                     for path in (root / folder).rglob("*") if path.suffix in (".h", ".cpp"))
    strange = {name for name in names if not re.search(rf"\b{name}\b", tree)}
    if len(names) < 30:
        wrong.append(f"only {len(names)} names found: this check reads the file wrongly")
    if strange - OWN_NAMES:
        wrong.append(f"names that the tree does not have: {', '.join(sorted(strange - OWN_NAMES))}")
    if OWN_NAMES - names:
        wrong.append(f"no longer in the file: {', '.join(sorted(OWN_NAMES - names))}")

    tour = (root / "docs/TOUR.md").read_text().split("## First: the idea in one file")[1]
    rows = re.findall(r"^\| .* \| `(.*)` \|$", tour.split("\n## ")[0].split("\n### ")[0], re.M)
    wrong += [f"docs/TOUR.md answers by a line that is not there: {row}"
              for row in rows if row not in text]
    if len(rows) < 10:
        wrong.append(f"docs/TOUR.md: {len(rows)} questions with their lines; at least 10")

    with tempfile.TemporaryDirectory() as work:
        program = f"{work}/in_one_file"
        subprocess.run([compiler, "-O2", "-std=c++20", "-Wall", "-Wextra", "-Werror", source, "-o",
                        program], check=True)
        # A derivative that is wrong is found, and nothing is trained with it.
        found = subprocess.run([program, "--wrong"], capture_output=True, text=True)
        if found.returncode != 1 or not re.fullmatch(
                r"gradcheck: w1\[\d+\]: backward -?[\d.]+, differences -?[\d.]+\n", found.stdout):
            wrong.append(f"--wrong: status {found.returncode}, {found.stdout!r}")
    for line in wrong:
        print(f"{source.name}: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), sys.argv[2]))
