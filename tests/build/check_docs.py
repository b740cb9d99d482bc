#!/usr/bin/env python3
"""check_docs.py ROOT [BIN [--write]]: what README.md and docs/ say is so.

Without BIN, what stands in the tree: files that are named exist; the walk "One op all the way" in
docs/TOUR.md is a list of at most 20 files "N. `FILE`: `SYMBOL`, `SYMBOL`. Why.", each SYMBOL in its
file; a stop of the tour has all its parts; lengths; README's counts of code lines are true within 5 %, its
measured times stand in docs/results, and its program is the tutorial 05_train_digits; the names of
docs/API.md are in their headers.

With BIN, the folder of the programs: every command in README.md and the documents of RUN runs, those of a document in one empty folder. What stands in a block as "    $ COMMAND"
must print what follows it, but for times and all other numbers with a point, a unit or a percent
sign; after "<!-- compared: REGEX -->" only what REGEX finds is compared. Of a program in the text,
and in a block without $, only the exit status is looked at. Each title of a column that is printed
is a word of docs/GLOSSARY.md. --write puts the present output into the documents.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

MOST_FILES = 20
RUN = ["README.md", "docs/GUIDE.md", "docs/TOUR.md", "docs/POSTS.md", "docs/CONTRIBUTING.md"]
MOST_LINES, MOST_IN_ALL = {"README.md": 130, "docs/API.md": 150}, 1700
# The first line of a table, and of a block of scopes.
TITLES = re.compile(r"^ *(Self%|CUDA%|CPU total|Fused row|Row|Step  |class  ).*", re.M)
# What differs from run to run or from machine to machine, and what stands for it.
MASKS = [
    (r"\d{8}-\d{6}\S*", "RUN"),                                  # a run's folder
    (r"/tmp/\S*?(?=/runs|/\.cache)|/home/ada", "HOME"),
    (r"^(device +cpu).*", r"\1"),
    (r"^(?:ok|note) +(version|build|bf16|products|zlib|libpng|threads|ranks|nccl|cuda|simt) .*", r"\1"),
    (r"(confused most:|ready:|then) .*", r"\1"),
    (r"^(worst|item \d+) .*", r"item"),
    (r"\d+ threads?", "threads"),
    (r"- (no difference|machine busy)|[\d.]+x \[[^]]*\]", "RATIO"),
    (r"[-+]*\d[\d,]*(\.\d+(e[-+]?\d+)?|e[-+]?\d+)x?( ?(%|us|ms|s|min)\b)?", "#"),
    (r"[-+]*\d[\d,]* ?(%|us\b|ms\b|s\b|min\b|GF/s|GB/s)", "#"),
    (r"# ?%", "#"),
    (r" +", " "),
]
root = pathlib.Path(sys.argv[1])
faults = []


def masked(text):
    lines = []
    for line in text.splitlines():
        line = line.strip()
        for pattern, stands_for in MASKS:
            line = re.sub(pattern, stands_for, line)
        lines.append(line)
    return "\n".join(lines).strip()


def check_walk(tour):
    walk = tour.split("## One op all the way", 1)[-1].split("\n## ")[0]
    steps = re.findall(r"^(\d+)\. `([^`]+)`: ((?:`[^`]+`(?:,\s+)?)+)\.", walk, re.M)
    if [int(n) for n, _, _ in steps] != list(range(1, len(steps) + 1)) or not steps:
        faults.append(f"the walk is not numbered from 1: {[n for n, _, _ in steps]}")
    if len(re.findall(r"^\d+\. ", walk, re.M)) != len(steps):
        faults.append("a step of the walk names no symbols")
    if len(steps) > MOST_FILES:
        faults.append(f"the walk goes through {len(steps)} files, at most {MOST_FILES}")
    if len({file for _, file, _ in steps}) != len(steps):
        faults.append("a file stands in the walk twice")
    for n, file, symbols in steps:
        check_symbols(f"step {n}", file, symbols)


def check_symbols(where, file, symbols):
    if not (root / file).exists():
        return  # check_files says so
    text = re.sub(r"//[^\n]*", "", (root / file).read_text())
    for symbol in re.findall(r"`([^`/]+)`", symbols):
        # A function or method, a class, or the definition of an op.
        if not re.search(rf"(?<![\w.>]){re.escape(symbol)}(?=\(|<|\{{| : | \{{| = )", text):
            faults.append(f"{where}: {file} has no {symbol}")


def check_stops(tour):
    stops = re.split(r"^### ", tour, flags=re.M)[1:]
    stops = [stop.split("\n## ")[0] for stop in stops]
    if len(stops) != 11:
        faults.append(f"the tour has {len(stops)} stops, not eleven")
    for stop in stops:
        title = stop.split("\n")[0]
        looks = re.findall(r"^\*\*Look\*\* (.*?)\n\n", stop, re.M | re.S)
        if len(looks) != 1 or "    $ " not in stop or "**Question**" not in stop or \
                "**Answer**" not in stop:
            faults.append(f"stop {title}: wants Look, a command, Question and Answer")
            continue
        for file, symbols in re.findall(r"`([^`]+)`: ((?:`[^`/]+`(?:,\s+)?)+)", looks[0]):
            check_symbols(f"stop {title}", file, symbols)


def check_files():
    folders = [p.name for p in root.iterdir() if p.is_dir() and p.name != "build"]
    lengths = {}
    for document in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        text = document.read_text()
        lengths[document.relative_to(root).as_posix()] = text.count("\n")
        for name in sorted(set(re.findall(r"`([a-z_]+/[\w/.]+\.(?:h|cpp|cu|cuh|py|md))`", text))):
            if name.split("/")[0] in folders and not (root / name).exists():
                faults.append(f"{document.name}: no file {name}")
        prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
        for link in re.findall(r"\]\((?!http)([^)#]+)", prose):
            if not (document.parent / link).exists():
                faults.append(f"{document.name}: no file {link}")
    faults.extend(f"{name}: {lengths[name]} lines, at most {most}"
                  for name, most in MOST_LINES.items() if lengths[name] > most)
    lengths.pop("docs/FLAGS.md")  # made from --help, for looking up
    if sum(lengths.values()) > MOST_IN_ALL:
        faults.append(f"all documents: {sum(lengths.values())} lines, at most {MOST_IN_ALL}: "
                      f"{lengths}")


def check_readme(readme):
    """Its times are measured ones, its program is a tutorial, its counts are true."""
    results = (root / "docs/results/README.md").read_text().splitlines()
    timed = re.findall(r"^\| [^|]*(?:batch|rows)[^|]*\|((?: [\d.]* ?\|)+)", readme, re.M)
    for cells in timed:
        times = re.findall(r"[\d.]+", cells)
        if not any(set(times) <= set(re.findall(r"\d+(?:\.\d+)?", line)) for line in results):
            faults.append(f"README.md: no line of docs/results/README.md has the times {times}")
    if len(timed) < 5:
        faults.append("README.md: no tables of times")
    tutorial = (root / "examples/05_train_digits.cpp").read_text()
    if tutorial[tutorial.index("using namespace"):] not in readme:
        faults.append("README.md: its program is not that of examples/05_train_digits.cpp")
    rows = re.findall(r"^\| `([\w/]+)/` \| ([\d,]+) \|", readme, re.M)
    names = [name for name, _ in rows]
    for name, said in rows:
        files = [f for f in (root / name).rglob("*") if f.suffix in (".h", ".cpp", ".cu", ".cuh")]
        inner = [n for n in names if n.startswith(name + "/")]
        files = [f for f in files if not any(root / n in f.parents for n in inner)]
        lines = sum(len(re.findall(r"^(?!\s*//)(?=.*\S)", f.read_text(), re.M)) for f in files)
        if not 0.95 < int(said.replace(",", "")) / max(lines, 1) < 1.05:
            faults.append(f"README.md: {name}/ has {lines} code lines, not {said}")
    if len(rows) < 10:
        faults.append("README.md: no table of folders with their lines")


def check_api():
    """Each name of docs/API.md is in a header of its section."""
    sections = re.split(r"^## ", (root / "docs/API.md").read_text(), flags=re.M)[1:]
    for section in sections:
        files = re.findall(r"`([\w/]+\.h)`", section.split("\n")[0])
        headers = "".join(re.sub(r"//[^\n]*", "", (root / file).read_text()) for file in files)
        names = re.findall(r"`([^`]+)`", "".join(re.findall(r"^\| (`[^|]*) \|", section, re.M)))
        faults.extend(f"docs/API.md: no {name} in {files}"
                      for name in names if not re.search(rf"\b{name}\b", headers))
        if not names or "```cpp" not in section:
            faults.append(f"docs/API.md: {files}: no names, or no code")


def check_flags(guide):
    flags = (root / "docs/FLAGS.md").read_text()
    by_task = guide.split("## Flags by task", 1)[-1].split("\n## ")[0]
    for flag in set(re.findall(r"--[a-z][a-z-]+", by_task)):
        if not re.search(rf"{flag}[ ,\[`]", flags):
            faults.append(f"docs/GUIDE.md: docs/FLAGS.md has no {flag}")


def glossary():
    text = (root / "docs/GLOSSARY.md").read_text()
    return {w for words in re.findall(r"^- \*\*([^*]+)\*\*", text, re.M) for w in words.split(", ")}


def check_titles(output):
    for found in TITLES.finditer(output):
        for title in re.split(r" {2,}| ?<- ?", found.group(0).strip()):
            title = re.sub(r" \d+$|,", "", title)  # hidden 256; us, self CPU
            if title and title not in glossary():
                faults.append(f"docs/GLOSSARY.md: no column '{title}'")
    return len(TITLES.findall(output))


class Session:
    """The commands of one document, one after the other in a folder of their own."""
    compared = {}  # what a comparison has printed: several commands filter the same

    def __init__(self, bin_folder):
        self.folder = tempfile.TemporaryDirectory()
        home, bin_folder = self.folder.name, pathlib.Path(bin_folder).absolute()
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("SINTER_")} | {
            "HOME": home, "NO_COLOR": "1", "PATH": f"{bin_folder}:{os.environ['PATH']}",
            "XDG_CACHE_HOME": f"{bin_folder.parent}/cache"}  # see tests/keep_roofs.py
        self.done = set()

    def run(self, command):
        self.done.add(command)
        program, _, filters = command.partition(" | ")
        said = b""
        if filters and program.startswith(("mnist compare -q ", "geglu -q ")):
            if program not in self.compared:
                self.compared[program] = self.bash(program, stderr=subprocess.PIPE)
            said = self.compared[program].stderr
            ran = self.bash(filters, self.compared[program].stdout)
        else:
            ran = self.bash(command)
        said = (said + ran.stdout).decode().rstrip("\n")
        return ran.returncode, said.replace(self.folder.name, "/home/ada")

    def bash(self, command, given=b"", stderr=subprocess.STDOUT):
        return subprocess.run(["bash", "-c", command], cwd=self.folder.name, env=self.environment,
                              input=given, stdout=subprocess.PIPE, stderr=stderr, timeout=500)


def check_output(name, command, regex, wanted, got):
    wanted, got = masked(wanted), masked(got)
    if regex:
        wanted, got = (re.findall(regex, text, re.M) for text in (wanted, got))
        if not wanted:
            faults.append(f"{name}: $ {command}: nothing is compared by {regex}")
    if wanted != got:
        faults.append(f"{name}: $ {command}\n--- wanted\n{wanted}\n--- got\n{got}\n---")


def run_document(name, bin_folder, write):
    """Runs a document's commands; returns how many titles of tables were printed."""
    text, session, titles = (root / name).read_text(), Session(bin_folder), 0
    _, step = session.run("mnist train --device simt --dry-run --batch 1 --limit 1 --val 0 -q")
    without_emulator = "not in this build" in step
    new, regex, lines, i = [], "", text.split("\n"), 0
    while i < len(lines):
        line = lines[i]
        new.append(line)
        i += 1
        regex = (re.findall(r"^<!-- compared: (.*) -->$", line) or [regex])[0]
        if line and not line.startswith(("    ", "<!--")):
            regex = ""
        if not line.startswith("    $ "):
            continue
        command, end = re.sub(r" {2,}#.*", "", line[6:]), i
        while end < len(lines) and not lines[end].startswith("    $ ") and \
                (lines[end].startswith("    ") or not lines[end]):
            end += 1
        while end > i and not lines[end - 1]:
            end -= 1
        if command.startswith(("scripts/", "mpirun ")) or (without_emulator and "simt" in command):
            print(f"{name}: not run: {command}")
            continue
        status, got = session.run(command)
        titles += check_titles(got)
        if status:
            got += f"\n(exit status {status})"
        if write:
            new.extend(("    " + shown).rstrip() for shown in got.split("\n"))
        else:
            check_output(name, command, regex, "\n".join(lines[i:end]), got)
            new.extend(lines[i:end])
        i = end
    without_output = re.findall(r"`((?:mnist|gpt|geglu|\d\d_\w+) [^`]+)`", text.replace("\\|", "|")) + \
        re.findall(r"^    ((?:mnist|gpt|geglu) .*?)(?: {2,}#.*)?$", text, re.M)
    for command in dict.fromkeys(" ".join(found.split()) for found in without_output):
        is_form = re.search(r"\.\.|\b[A-Z]+\b|\.(png|json)|--help", command)
        if is_form or command in session.done or (without_emulator and "simt" in command):
            continue
        status, got = session.run(command)
        if status:
            faults.append(f"{name}: `{command}`: exit status {status}\n{got}")
        titles += check_titles(got)
    if write:
        (root / name).write_text("\n".join(new))
    return titles


tour_text = (root / "docs/TOUR.md").read_text()
if len(sys.argv) == 2:
    check_walk(tour_text)
    check_stops(tour_text)
    check_files()
    check_readme((root / "README.md").read_text())
    check_flags((root / "docs/GUIDE.md").read_text())
    check_api()
elif sum(run_document(name, sys.argv[2], sys.argv[3:] == ["--write"]) for name in RUN) < 4:
    faults.append("fewer than four tables were seen: is TITLES of this script right?")
for fault in faults:
    print(f"check_docs: {fault}")
sys.exit(1 if faults else 0)
