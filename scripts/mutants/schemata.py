"""Rewrites C++ sources so that each condition can be made wrong at run time (mutation schemata:
Untch, Offutt, Harrold 1993): one build holds all mutants, an environment variable chooses one.

Two kinds of mutants:
  - an operand of a condition is removed: of `a && b`, `a || b`, and a condition that is one operand
    alone, which then never fails what it guards;
  - the bound of <, <=, > or >= moves by one, in either direction.

There is no C++ parser here. It leans on clang-format: a binary operator has a space or a line's end
on either side, a template's bracket has none. What it rewrites wrongly does not compile.
"""

import dataclasses
import re

CLOSES = {"(": ")", "[": "]", "{": "}"}
COMPARES = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge"}

# What a statement begins with that a check guards.
FAILS = re.compile(
    r"\s*(\[\[unlikely\]\]|\{?\s*(throw\b|fail\w*\(|refuse\w*\(|report<|add\(where|stop\(|"
    r"return\s+(finding<|report<|within|\"|fmt::format|false\b|nullptr\b|std::nullopt|fail\w*\()))")
# Functions whose first argument must hold, and the folder or file that they belong to.
REQUIRES = {"vm/library/": re.compile(r"\b(require_fit|fits)\("),
            "vm/executable/portable_verifier": re.compile(r"\b(require<[^<>]*>|dtype|lanes)\(")}


@dataclasses.dataclass
class Mutant:
    file: str
    line: int
    condition: str  # the whole, white space squeezed
    change: str
    number: int = 0

    def key(self):
        return f"{self.file} | {self.condition} | {self.change}"


def blank(text):
    """The text, with comments and the contents of literals as spaces."""
    pattern = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'',
        re.DOTALL)

    def spaces(match):
        found = match.group(0)
        inside = re.sub(r"[^\n]", " ", found)
        if found.startswith("/"):
            return inside
        return '"' + inside[1:-1] + '"' if len(inside) > 1 else inside
    text = re.sub(r"(?m)^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: re.sub(r"[^\n]", " ", m.group(0)),
                  text)
    return pattern.sub(spaces, text)


def squeeze(text):
    return re.sub(r"\s+", " ", text).strip()


class Rewriter:
    def __init__(self, file, text, everything):
        self.file, self.text, self.everything = file, text, everything
        self.code = blank(text)
        self.mutants = []
        self.edits = []  # (position, order, inserted, characters replaced)
        self.claimed = []  # regions, so that none is rewritten twice

    # --- Structure -----------------------------------------------------------------------------

    def match(self, at):
        """The position behind the bracket that closes the one at `at`."""
        depth = 0
        for i in range(at, len(self.code)):
            c = self.code[i]
            if c in "([{":
                depth += 1
            elif c in ")]}":
                depth -= 1
                if depth == 0:
                    return i + 1
        raise ValueError(f"{self.file}: a bracket stays open")

    def outside(self, start, end):
        """Positions in a region that no bracket encloses."""
        i = start
        while i < end:
            yield i
            i = self.match(i) if self.code[i] in "([{" else i + 1

    def operators(self, start, end, names):
        """Positions of these binary operators outside of brackets."""
        found = []
        for i in self.outside(start, end):
            for name in names:
                j = i + len(name)
                if (self.code.startswith(name, i) and i > start and self.code[i - 1].isspace()
                        and j < end and self.code[j].isspace()):
                    found.append((i, name))
                    break
        return found

    def split(self, start, end, operator):
        cuts = [at for at, _ in self.operators(start, end, [operator])]
        parts, begin = [], start
        for at in cuts:
            parts.append((begin, at))
            begin = at + len(operator)
        return parts + [(begin, end)]

    def trim(self, start, end):
        while start < end and self.code[start].isspace():
            start += 1
        while end > start and self.code[end - 1].isspace():
            end -= 1
        return start, end

    # --- Mutants -------------------------------------------------------------------------------

    def mutant(self, at, change):
        line = self.text.count("\n", 0, at) + 1
        self.mutants.append(Mutant(self.file, line, self.condition, change))
        return self.mutants[-1]

    def insert(self, at, order, text, replaced=0):
        self.edits.append((at, order, text, replaced))

    def remove(self, start, end, value, depth):
        start, end = self.trim(start, end)
        what = squeeze(self.text[start:end])
        m = self.mutant(start, f"without {what}" if what != self.condition
                        else f"always {str(value).lower()}")
        self.insert(start, depth, ("OPERAND", m, value))
        self.insert(end, -depth - 1, ")")

    def boolean(self, start, end, depth, alone):
        """A condition. `alone`: what it becomes if it is one operand and is removed, or None."""
        start, end = self.trim(start, end)
        if start >= end:
            return
        question = self.operators(start, end, ["?"])
        if question:
            first = question[0][0]
            colons, nested = [], 0
            for at, name in self.operators(start, end, ["?", ":"]):
                if name == "?":
                    nested += 1
                else:
                    nested -= 1
                    if nested == 0 and not colons:
                        colons.append(at)
            if not colons:
                return
            self.boolean(start, first, depth, None)
            self.boolean(first + 1, colons[0], depth, None)
            self.boolean(colons[0] + 1, end, depth, None)
            return
        for operator, neutral in (("||", False), ("&&", True)):
            parts = self.split(start, end, operator)
            if len(parts) > 1:
                for a, b in parts:
                    self.remove(a, b, neutral, depth)
                    self.boolean(a, b, depth + 1, None)
                return
        if alone is not None:
            self.remove(start, end, alone, depth)
            depth += 1
        inner = start
        while inner < end and self.code[inner] == "!":
            inner += 1
        if inner < end and self.code[inner] == "(" and self.match(inner) == end:
            self.boolean(inner + 1, end - 1, depth, None)
            return
        equal = self.operators(start, end, ["==", "!="])
        if equal:
            begin = start
            for at, name in equal + [(end, "")]:
                a, b = self.trim(begin, at)
                if a < b and self.code[a] == "(" and self.match(a) == b:
                    self.boolean(a + 1, b - 1, depth, None)
                begin = at + len(name)
            return
        self.comparison(start, end, depth)

    def comparison(self, start, end, depth):
        found = self.operators(start, end, ["<=", ">=", "<", ">"])
        if len(found) != 1 or self.operators(start, end, ["=", "&", "|", ",", "<<", ">>"]):
            return
        at, name = found[0]
        what = squeeze(self.text[start:end])
        more = self.mutant(start, f"one more in {what}")
        fewer = self.mutant(start, f"one less in {what}")
        self.insert(start, depth, ("COMPARE", COMPARES[name], more, fewer))
        self.insert(at, 0, ",", len(name))
        self.insert(end, -depth - 1, ")")

    def region(self, start, end, alone):
        start, end = self.trim(start, end)
        if any(a == start and b == end for a, b in self.claimed):
            return
        self.claimed.append((start, end))
        self.condition = squeeze(self.text[start:end])
        self.boolean(start, end, 1 + 100 * len(self.claimed), alone)

    # --- Where conditions stand ----------------------------------------------------------------

    def is_logical(self, start, end, comparisons):
        names = ["&&", "||"] + (["<", "<=", ">", ">="] if comparisons else [])
        return bool(self.operators(*self.trim(start, end), names))

    def statement_end(self, at):
        for i in self.outside(at, len(self.code)):
            if self.code[i] in ";)}":
                return i
        return at

    def find_ifs(self):
        for m in re.finditer(r"\bif \(", self.code):
            start, end = m.end(), self.match(m.end() - 1) - 1
            if not self.everything and not FAILS.match(self.code[end + 1:end + 200]):
                continue
            semicolon = [i for i in self.outside(start, end) if self.code[i] == ";"]
            if semicolon:
                start = semicolon[-1] + 1
            declared = re.match(r"\s*(?:const\s+)?[\w:]+(?:<[^=;]*>)?\s*[*&]*\s+[*&]?(\w+) = ",
                                self.code[start:end])
            if declared:
                self.condition = squeeze(self.text[start:end])
                mutant = self.mutant(start, "always false")
                self.insert(end, 0, ("DECLARED", mutant, declared.group(1)))
            else:
                self.region(start, end, False)

    def find_requires(self):
        for place, pattern in REQUIRES.items():
            if self.file.startswith(place):
                self.find_calls(pattern)

    def find_calls(self, pattern):
        for m in pattern.finditer(self.code):
            start, close = m.end(), self.match(m.end() - 1) - 1
            commas = [i for i in self.outside(start, close) if self.code[i] == ","]
            end = commas[0] if commas else close
            if not re.fullmatch(r"\s*(const )?[\w:]+[&*]? [&*]?\w+\s*", self.code[start:end]):
                self.region(start, end, True)

    def find_values(self):
        for m in re.finditer(r"\breturn\s|\bbool \w+\s+=\s|\s[&|]=\s", self.code):
            start, end = m.end(), self.statement_end(m.end())
            if self.code[end] == ";" and self.is_logical(start, end, self.everything):
                self.region(start, end, None)

    def run(self):
        self.find_ifs()
        self.find_requires()
        self.find_values()
        return self.mutants

    def result(self):
        """The text, once its mutants have numbers."""
        out, done = [], 0
        for at, _, what, replaced in sorted(self.edits, key=lambda e: (e[0], e[1])):
            out.append(self.text[done:at])
            done = at + replaced
            if isinstance(what, str):
                out.append(what)
            elif what[0] == "OPERAND":
                out.append(f"::nimble::mutants::operand({what[1].number}, "
                           f"{str(what[2]).lower()}, ")
            elif what[0] == "DECLARED":
                out.append(f"; ::nimble::mutants::operand({what[1].number}, false, {what[2]})")
            else:
                _, name, more, fewer = what
                out.append(f"::nimble::mutants::compare_{name}({more.number}, {fewer.number}, ")
        out.append(self.text[done:])
        return '#include "vm/base/mutants.h"\n' + "".join(out)
