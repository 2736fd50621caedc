#!/usr/bin/env python3
"""Which sources of a target can be compiled as one: what cmake/NimbleUnity.cmake asks.

    scripts/unity_groups.py SIZE <TARGETS

Each line of the input names a target and its sources, relative to the repository. Each line of the
output names a target and two of its sources or more, at most SIZE; a source is in one line at most.

What a file keeps to itself, in a namespace without a name, by "using" or as a macro, is seen by
those that follow it in a group. So two files stay apart

- where one uses a word that the other keeps to itself (unless both say "using" of the same),
- where one keeps a name to itself that the other's headers have in the same namespace or around
  it, and its own headers have not,
- where one uses a word that is a macro of the other or of its headers, and not of its own,
- where one opens a namespace (using namespace) that the other does not open.

A file with pragmas stays alone. Read are words, not C++: what is kept apart without need costs
time, what is missed the compiler finds.
"""

import functools
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]

TOKEN = re.compile(r"""
    //[^\n]* | /\*.*?\*/
  | (?P<raw>\bR"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)")
  | (?P<string>"(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])+')
  | (?P<line>^[ \t]*\#(?:\\\n|[^\n])*)
  | (?P<word>[A-Za-z_]\w*)
  | (?P<number>\d(?:[\w.']|[eEpP][+-])*)
  | (?P<sign>::|->|\S)
""", re.VERBOSE | re.DOTALL | re.MULTILINE)

WORD = re.compile(r"[A-Za-z_]\w*")
DIRECTIVE = re.compile(r'[ \t]*#[ \t]*(\w+)[ \t]*("[^"]*"|\w+|)')
TYPES = {"struct", "class", "union", "enum"}
# Their operand in brackets belongs to them.
WITH_OPERAND = {"alignas", "decltype", "noexcept", "__attribute__"}
TEXT = '""'  # stands for each string


class Source:
    """The names of a file. A namespace is the tuple of its names; those without one are left out.

    declared  (namespace, name) at the scope of a namespace
    own       those that the file keeps to itself
    shared    of own, what "using a::b;" brought, by (namespace, name)
    used      words, but those behind ".", "->" and "::"
    macros    what it defines, though perhaps not to its end
    opened    what "using namespace" opened at the scope of a namespace
    includes  what it includes with quotation marks
    alone     whether it has pragmas, or brackets that do not match
    """

    def __init__(self, text):
        self.declared, self.own, self.shared = set(), set(), {}
        self.used, self.macros, self.opened, self.includes = set(), set(), set(), []
        self.alone = False
        self._scopes = []  # of open braces: what names a namespace has, None for another brace
        self._read(text)

    def _read(self, text):
        head, depth, before = [], 0, ""  # words of a declaration; open brackets among them
        for match in TOKEN.finditer(text):
            kind, token = match.lastgroup, match.group()
            if kind is None:
                continue
            if kind == "line":
                self._directive(token)
                continue
            if kind == "word" and before not in (".", "->", "::"):
                self.used.add(token)
            before = token
            inside = None in self._scopes
            if token == "{":
                names = None if inside or depth else self._opening(head)
                self._scopes.append(names)
                head = head if names is None else []
            elif token == "}":
                self.alone |= not self._scopes
                del self._scopes[-1:]
                if None not in self._scopes and not depth:
                    head = []
            elif inside:
                if head[:1] == ["enum"] and head[1:2] not in (["class"], ["struct"]) and \
                        kind == "word":
                    self._declare(token, head)
            elif token == ";" and not depth:
                self._ending(head)
                head = []
            else:
                depth += (token in "([") - (token in ")]")
                head.append(TEXT if kind in ("raw", "string") else token)
        self.alone |= bool(self._scopes)

    def _directive(self, line):
        what, name = DIRECTIVE.match(line).groups()
        if what == "include":
            self.includes += [name[1:-1]] if name else []
            return
        self.used.update(WORD.findall(line))
        if what == "define":
            self.macros.add(name)
        self.alone |= what == "pragma" and name != "once"

    def _opening(self, head):
        """What a brace opens: a namespace's names, or None, and then it is the body of a name."""
        if "namespace" in head[:2]:
            return tuple(w for w in head[head.index("namespace") + 1:] if w != "::")
        if head == ["extern", TEXT]:
            return ("",)  # as if it were not there: no name, but not without one
        for name in names_of(head):
            self._declare(name, head)
        return None

    def _ending(self, head):
        if head[:2] == ["using", "namespace"]:
            self.opened.add("".join(head[2:]))
        elif head[:1] == ["using"] and "=" not in head:
            self._declare(head[-1], head)
            self.shared[self._place(), head[-1]] = "".join(head[1:])
        else:
            for name in names_of(head):
                self._declare(name, head)

    def _place(self):
        return tuple(name for scope in self._scopes if scope for name in scope if name)

    def _declare(self, name, head):
        self.declared.add((self._place(), name))
        if () in self._scopes or {"static", "constexpr"} & set(head) or \
                head[0] in ("using", "namespace", "typedef", "const"):
            self.own.add((self._place(), name))


def names_of(head):
    """The names that a declaration gives, from its words up to the body or the semicolon."""
    # A macro that makes one: TEST_F(Suite, Name), MATCHER_P(Name, …)
    if len(head) > 2 and head[1] == "(" and re.fullmatch(r"[A-Z][A-Z0-9_]+", head[0]):
        words = [w for w in head[2:] if WORD.fullmatch(w)]
        return ["_".join(words[:2])] if "TEST" in head[0] else words[:1]
    head = without_brackets(head)
    if "operator" in head:
        return ["operator"]
    if head[:1] == ["using"]:
        return head[1:2]
    if head[:1] == ["static_assert"]:
        return []
    head = [w for w in head if w not in ("static", "inline", "constexpr", "const", "final")]
    if head and head[0] in TYPES:
        # Its name, or that of a variable or function of it.
        head = [w for w in head if w not in TYPES]
        end = head.index(":") if ":" in head else len(head)
        head = head[:end]
        return [w for w in head[:1] if WORD.fullmatch(w)] + names_of(["auto", *head[1:]])
    name = ""
    for before, word in zip(["", *head], head):
        if word in ("(", "[", "=", "{", ",", ":"):
            break
        if WORD.fullmatch(word):
            name = "" if before == "::" else word
        elif word == "::":
            name = ""
    return [name] if name and len(head) > 1 and name != "auto" else []


def without_brackets(head):
    """Without attributes, <…> before the first bracket, and the operands of decltype and the like."""
    out, depth, closing = [], 0, ""
    for i, word in enumerate(head):
        if depth:
            depth += (word == opening) - (word == closing)
        elif word == "<" and "(" not in out and "=" not in out and "operator" not in out:
            opening, closing, depth = "<", ">", 1
        elif word == "(" and out and out[-1] in WITH_OPERAND:
            opening, closing, depth = "(", ")", 1
        elif word == "[" and head[i + 1:i + 2] == ["["]:
            opening, closing, depth = "[", "]", 1
        else:
            out.append(word)
    return [w for w in out if w not in WITH_OPERAND and w not in ("template", "typename")]


@functools.lru_cache(None)
def source(path):
    return Source((ROOT / path).read_text(encoding="utf-8", errors="replace"))


@functools.lru_cache(None)
def of_headers(path):
    """(namespace, name) that the repository's headers declare for a file; macros as (None, name)."""
    out, seen, todo = set(), set(), [path]
    while todo:
        for name in source(todo.pop()).includes:
            if name.endswith(".h") and name not in seen and (ROOT / name).is_file():
                seen.add(name)
                todo.append(name)
                out |= source(name).declared
                out |= {(None, macro) for macro in source(name).macros}
    return out


def disturbs(a, b):
    """Whether what `a` keeps to itself, or what it includes, may change or break `b`."""
    first, second = source(a), source(b)
    kept = {name for place, name in first.own
            if (place, name) not in first.shared or
            first.shared[place, name] != second.shared.get((place, name))}
    if (kept | first.macros) & second.used or first.opened != second.opened:
        return True
    more = of_headers(a) - of_headers(b)
    return any((place[:n], name) in more
               for place, name in second.own for n in range(len(place) + 1)) or \
        any((None, name) in more for name in second.used)


def groups(paths, size):
    """Greedily, in the order of the paths: neighbours include much the same headers."""
    out = []
    for path in paths:
        for group in out:
            if len(group) < size and not any(disturbs(path, other) or disturbs(other, path)
                                             for other in group):
                group.append(path)
                break
        else:
            out.append([path])
    return [group for group in out if len(group) > 1]


def main():
    if len(sys.argv) != 2 or not sys.argv[1].isdigit():
        print(__doc__.strip())
        return 0 if sys.argv[1:] in (["-h"], ["--help"]) else 2
    for line in sys.stdin:
        target, *paths = line.split()
        for group in groups([p for p in paths if not source(p).alone], int(sys.argv[1])):
            print(target, *group)
    return 0


if __name__ == "__main__":
    sys.exit(main())
