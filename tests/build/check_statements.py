#!/usr/bin/env python3
"""check_statements.py ROOT: no statement is a ternary, or several joined by commas: each says one
thing."""
import pathlib
import re
import sys

FOLDERS = ("autograd bench capture cli core data distributed examples measure nn ops profiler "
           "tests train").split()
# What may begin a statement that has commas by right: declarations, returns, loops.
DECLARES = re.compile(
    r"(alignas|const|static|constexpr|inline|extern|thread_local|auto|void|bool|char|int|unsigned|"
    r"float|double|size_t|u?int\d+_t|std::|using"
    r"|return|for|while|if|case|throw|template|struct|class|public|private|friend|typedef|enum|#)\b"
)
CONDITION = re.compile(
    r"^(else\s+)?(if|while|for)\s*(constexpr\s*)?"
    r"\((?:[^()]|\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))*\)\s*|^else\s+")
DECLARATION = re.compile(r"^[\w:]+(<.*>)?[\s&*]+\w+")


def blank(text):
    """The text without what stands in comments, literals and preprocessor lines."""
    text = re.sub(r"//[^\n]*|^\s*#(?:[^\n]*\\\n)*[^\n]*",
                  lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.M)
    text = re.sub(r"'(?:\\.|[^'\\\n])'", "'x'", text.replace("operator()", "operator__"))
    text = re.sub(r'"(?:\\.|[^"\\\n])*"', lambda m: '"' + "x" * (len(m.group()) - 2) + '"', text)
    # initialisers, so that braces are blocks
    return re.sub(r"(?<=[\w>])\{([^{};\n]*)\}", r"(\1)", text)


def outermost(statement):
    """The characters outside of all brackets, or "" if brackets do not match."""
    depth, angles, out = 0, 0, ""
    for i, c in enumerate(statement):
        # A template's < follows a name at once; clang-format sets a comparison's apart.
        if c == "<" and i > 0 and (statement[i - 1].isalnum() or statement[i - 1] == "_"):
            angles += 1
        elif c == ">" and angles > 0 and statement[i - 1] != "-":
            angles -= 1
        depth += (c in "([") - (c in ")]")
        if depth == 0 and angles == 0:
            out += c
    return out if depth == 0 and angles == 0 else ""


def after_loop_header(statement):
    """The statement without the end of a for's header, whose begin went with its first
    semicolon."""
    depth = 0
    for i, c in enumerate(statement):
        depth += (c in "([") - (c in ")]")
        if depth < 0:
            return after_loop_header(statement[i + 1 :].strip())
    return statement


def is_joined(statement, folder):
    statement = CONDITION.sub("", CONDITION.sub("", after_loop_header(statement)))
    outer = outermost(statement)
    if re.match(r"return\b|std::\w+\s*\(", statement):
        # whose fakes of C functions set and return in one
        return "," in outer and folder != "tests"
    if not statement or DECLARES.match(statement) or DECLARATION.match(statement):
        return False
    return ("," in outer and re.match(r"[\w(+*-]", outer) is not None
            or "?" in re.split(r"(?<![=!<>])=(?!=)", outer)[0])


def main(root):
    found = 0
    for folder in FOLDERS:
        endings = ".h", ".cpp", ".cu", ".cuh"
        for path in sorted(p for p in (root / folder).rglob("*") if p.suffix in endings):
            text = blank(path.read_text())
            for match in re.finditer(r"([^;{}]*)([;{}])", text):
                statement = match[1].strip() + match[2]
                if re.search(r"[,?].*;", statement, re.S) and is_joined(statement, folder):
                    begin = match.end() - len(match.group().lstrip())
                    print(f"{path.relative_to(root)}:{text.count(chr(10), 0, begin) + 1}: "
                          f"{' '.join(statement.split())[:120]}")
                    found += 1
    print(f"check_statements: {found} found")
    return found > 0


sys.exit(main(pathlib.Path(sys.argv[1])))
