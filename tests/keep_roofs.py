#!/usr/bin/env python3
"""keep_roofs.py MNIST FOLDER: measures the roofs of this machine into FOLDER/sinter/, which the
programs that tests start have as their XDG_CACHE_HOME. Each of them would measure for itself
otherwise, three times: beside other tests roofs are never kept. These are no measure of the
machine either, and nothing here asks for one.
"""
import json
import pathlib
import subprocess
import sys

mnist, folder = sys.argv[1], pathlib.Path(sys.argv[2], "sinter")
folder.mkdir(parents=True, exist_ok=True)
for flags in (), ("--threads", "1"):
    said = subprocess.run([mnist, "calibrate", "--json", *flags], stdout=subprocess.PIPE).stdout
    roofs = json.loads(said)
    name = 14695981039346656037  # FNV-1a, as core/cache.cpp names its files
    for byte in roofs["key"].encode():
        name = (name ^ byte) * 1099511628211 % 2**64
    (folder / f"roofs-{name}.txt").write_text(said.decode())
