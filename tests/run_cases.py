#!/usr/bin/env python3
"""Runs a group of GoogleTest cases in one process and says what became of each.

usage: run_cases.py PROGRAM PREFIX FILTER SHARD SHARDS REPORT

The group is every SHARDS-th case that FILTER lets through, from the SHARD-th on. Prints what
failed, with its output, and what was skipped, with its reason; writes a line for each case, `STATE
PREFIX.NAME MILLISECONDS`, to the file REPORT, behind a skip why it is permitted. STATE is passed,
failed or skipped. A case that ends its process has failed; those behind it run in a new one. A
process that says by its status what no case said, as one that fails in a destructor behind them
does, has failed. So has a skip that permitted_skips.txt does not name. Exit status 0: none failed;
77: all were skipped.
"""
import re
import subprocess
import sys
from collections import Counter

import skips

program, prefix, filter, shard, shards, report = sys.argv[1:]


def names():
    listing = subprocess.run([program, f"--gtest_filter={filter}", "--gtest_list_tests"],
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                             check=True).stdout
    for line in listing.splitlines():
        word = line.split("#")[0]
        if word.startswith("  "):
            yield suite + word.strip()
        else:
            suite = word.strip()


def run(waiting):
    """Runs one process over these cases; yields (name, state, milliseconds, output) of those that
    began."""
    process = subprocess.Popen([program, f"--gtest_filter={':'.join(waiting)}"],
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, errors="replace")
    name, output, failed = None, [], False
    for line in process.stdout:
        begin = re.match(r"\[ RUN      \] (\S+)", line)
        end = re.match(r"(.*)\[ +(OK|FAILED|SKIPPED) +\] (\S+?)(?:, where .*)? \((\d+) ms\)$", line)
        if begin:
            name, output = begin[1], []
        elif end and end[3] == name:
            state = {"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}[end[2]]
            failed = failed or state == "failed"
            yield name, state, end[4], output + [end[1]]
            name, output = None, []
        else:
            output.append(line)
    process.wait()
    ended = f"the process ended with status {process.returncode}"
    if name:
        yield name, "failed", 0, output + [ended]
    elif process.returncode != (1 if failed else 0):
        yield "AfterTheLastCase", "failed", 0, output + [ended]


waiting = list(names())[int(shard) - 1::int(shards)]
if not waiting:
    sys.exit(f"no case of {program} is named {filter}")
states = Counter()
with open(report, "w") as file:
    while waiting:
        began = list(run(waiting)) or [(waiting[0], "failed", 0, ["it did not begin"])]
        for name, state, milliseconds, output in began:
            why = skips.permitted(f"{prefix}.{name}", "".join(output)) if state == "skipped" else ""
            if state == "skipped" and not why:
                state, output = "failed", output + [skips.refusal(f"{prefix}.{name}")]
            states[state] += 1
            file.write(f"{state} {prefix}.{name} {milliseconds} {why}".rstrip() + "\n")
            if state != "passed":
                print(f"{state} {prefix}.{name}\n    {'    '.join(output).rstrip()}")
        ended = {name for name, *_ in began}
        waiting = [name for name in waiting if name not in ended]
print(", ".join(f"{count} {state}" for state, count in states.items()))
sys.exit(1 if states["failed"] else 77 if set(states) == {"skipped"} else 0)
