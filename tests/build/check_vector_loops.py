#!/usr/bin/env python3
"""check_vector_loops.py ARCHIVE: the loops over elements in the archive of ops are made of vectors.

A loop whose body the compiler did not inline, or could not free of branches, is scalar: right, ten
times slower, and seen by no other test. So each function that is such a loop, in f32 or bf16, must
have vector arithmetic where it has much arithmetic, and that of a compiled end vectors at all: its
arithmetic may be in what it calls. Exit status 77: the archive is not for AVX-512.
"""
import re
import subprocess
import sys

LOOPS = re.compile(r"(end_loop|pointwise_rows|step_loop)<")
SCALAR = re.compile(r"\tv(add|sub|mul|div|sqrt|max|min|fn?m(add|sub)\d*)ss\b")
VECTOR = re.compile(r"\tv(add|sub|mul|div|sqrt|max|min|fn?m(add|sub)\d*)ps\b.*[yz]mm")
MUCH = 10  # instructions; less is the sum of an address, or a loop's remainder
SLOW = {"PowOf": "an ulp of f32 takes a double, and libm's pow"}


def objdump(*words):
    return subprocess.run(["objdump", "-C", *words], capture_output=True, text=True,
                          check=True).stdout


def main(archive):
    # All sections together take half a minute.
    sections = {symbol[1] for symbol in re.finditer(r" F (\S+)\t(.*)", objdump("-t", archive))
                if LOOPS.search(symbol[2])}
    text = objdump("-d", "--no-show-raw-insn", *(f"--section={name}" for name in sections), archive)
    if "zmm" not in text:
        print("check_vector_loops: skipped: the archive is not for AVX-512")
        return 77
    loops, scalar = 0, []
    for function in re.split(r"\n(?=[0-9a-f]+ <)", text):
        name = function.split("\n", 1)[0]
        if not LOOPS.search(name) or any(slow in name for slow in SLOW):
            continue
        loops += 1
        calls = "end_loop<" in name and "double" not in name and not re.search("[yz]mm", function)
        if calls or (len(SCALAR.findall(function)) >= MUCH and not VECTOR.search(function)):
            scalar.append(name)
    print(*(f"no vectors: {name}" for name in scalar), sep="\n")
    print(f"check_vector_loops: {loops} loops, {len(scalar)} of them scalar")
    return 1 if scalar or loops < 50 else 0


sys.exit(main(sys.argv[1]))
