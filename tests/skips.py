#!/usr/bin/env python3
"""Which tests may be skipped: permitted_skips.txt says. Any other skip is a failure.

usage: skips.py NAME COMMAND...

Runs a command whose status 77 means "skipped", for the tests that are single programs. A skip that
is permitted is a line of the file NAME in the folder $SINTER_CASES, if that is set, as run_cases.py
writes them. Exit status: the command's, but 1 for a skip that is not permitted.
"""
import fnmatch
import os
import pathlib
import re
import subprocess
import sys

LIST = pathlib.Path(__file__).with_name("permitted_skips.txt")


def permitted(name, output):
    """Why it is, by the line for this test whose reason is in its output; "" if there is none."""
    for line in LIST.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        pattern, reason, why = line.split(" | ")
        assert why, line
        if fnmatch.fnmatchcase(name, pattern) and re.search(reason, output, re.M):
            return why
    return ""


def refusal(name):
    return f"{name} was skipped, and no line of tests/{LIST.name} permits it for this reason\n"


def main(name, *command):
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         errors="replace")
    print(run.stdout, end="")
    if run.returncode == 77:
        why = permitted(name, run.stdout)
        if not why:
            print(refusal(name), end="")
            return 1
        if "SINTER_CASES" in os.environ:
            pathlib.Path(os.environ["SINTER_CASES"], name).write_text(f"skipped {name} 0 {why}\n")
    return run.returncode if run.returncode >= 0 else 128 - run.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
