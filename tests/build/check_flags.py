#!/usr/bin/env python3
"""check_flags.py ROOT BIN: docs/FLAGS.md is what --help says of the programs in the folder BIN.

A row is a flag with its text, and the commands that have it with that text. In --help a flag's
value stands one blank behind its names, and its text in column 28, there or on the lines below.
SINTER_REGENERATE=1 writes the file anew.
"""
import os
import pathlib
import re
import subprocess
import sys

root, programs = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
COLUMN = 28
HEAD = """# Flags

Every flag of `mnist`, `gpt` and `geglu`, made from their `--help`. In brackets stands the default. A test
holds this page against the programs; it is written anew by
`SINTER_REGENERATE=1 tests/build/check_flags.py . build/release/bin`.

| flag | what | of |
|---|---|---|
"""


def help_of(*words):
    return subprocess.run([programs / words[0], *words[1:], "--help"], capture_output=True,
                          text=True, check=True).stdout


def flags_of(text):
    """(flag, text), in the order of the help."""
    rows = []
    for line in text.splitlines():
        if found := re.match(r"  (--[^\s,]+(?:, --?[^\s,]+)*(?: \S+)?) *(.*)", line):
            rows.append([found[1], found[2]])
        elif line.startswith(" " * COLUMN) and rows:
            rows[-1][1] = f"{rows[-1][1]} {line.strip()}".strip()
    return map(tuple, rows)


commands = re.findall(r"^  (\w+) {2,}", help_of("mnist"), re.M)
programs_of = {}
of_gpt = re.findall(r"^  (\w+) {2,}", help_of("gpt"), re.M)
for words in [*(("mnist", command) for command in commands), ("geglu",),
              *(("gpt", command) for command in of_gpt)]:
    for row in flags_of(help_of(*words)):
        name = "gpt" if words[0] == "gpt" else words[-1]  # all of its commands are one
        if name not in (names := programs_of.setdefault(row, [])):
            names.append(name)
wanted = HEAD
for (flag, text), names in programs_of.items():
    of = "all" if len(names) == len(commands) + 2 else ", ".join(names)
    flag, text = (cell.replace("|", r"\|") for cell in (flag, text))
    wanted += f"| `{flag}` | {text} | {of} |\n"
file = root / "docs/FLAGS.md"
if os.environ.get("SINTER_REGENERATE"):
    file.write_text(wanted)
if len(commands) < 8 or not file.exists() or file.read_text() != wanted:
    sys.exit("check_flags: docs/FLAGS.md is not what the programs say; SINTER_REGENERATE=1 "
             f"{sys.argv[0]} ROOT BIN writes it anew")
