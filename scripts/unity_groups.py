#!/usr/bin/env python3
"""Which sources of a target can be compiled as one: what cmake/NimbleUnity.cmake asks.

    scripts/unity_groups.py SIZE <LISTS

Each line of the input names a target and its sources, relative to the repository. Each line of the
output names a target and two of its sources or more, at most SIZE; a source is in one line at most.

What a file keeps to itself, in a namespace without a name, by "using" or as a macro, is seen by
those that follow it in a group. So two files stay apart

- where one uses a word that the other keeps to itself (unless both say "using" of the same),
- where one keeps a name to itself that the other's headers have in the same namespace, and its own
  headers have not,
- where one defines a macro that the other uses, or opens a namespace (using namespace) that the
  other does not open.

Read are words, not C++: what is kept apart without need costs time, what is missed the compiler
finds.
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

DIRECTIVE = re.compile(r'[ \t]*#[ \t]*(include|define|undef)[ \t]+("[^"]*"|<[^>]*>|\w+)')
KINDS = {"struct", "class", "union", "enum"}
# Before a name they make no declaration of it.
NOT_NAMES = KINDS | {
    "alignas", "auto", "const", "constexpr", "decltype", "extern", "friend", "inline", "noexcept",
    "operator", "requires", "static", "static_assert", "template", "thread_local", "typename",
    "using", "volatile", "__attribute__"}


class Source:
    """The names of a file. Namespaces are tuples of names; one without a name is left out.

    declared  (namespace, name) at the scope of a namespace
    own       those of them that the file keeps to itself
    shared    what "using a::b;" brings, by (namespace, name): the same twice does no harm
    used      words that are not members (a.b) or qualified (a::b)
    macros    what it defines, even if not to its end
    opened    namespaces opened by "using namespace", at the scope of one
    includes  headers of the repository
    """

    def __init__(self, text):
        self.declared, self.own, self.shared = set(), set(), {}
        self.used, self.macros, self.opened, self.includes = set(), set(), set(), []
        self.read(text)

    def read(self, text):
        scopes = []      # of open braces: a namespace's names, None for another
        hidden = []      # how many of the scopes are without a name, beside each
        head, depth = [], 0  # words since the last declaration ended; open brackets in it
        before = ""
        for match in TOKEN.finditer(text):
            kind, token = match.lastgroup, match.group()
            if kind is None:
                continue
            if kind == "line":
                self.directive(token)
                continue
            if kind == "word" and before not in (".", "->", "::"):
                self.used.add(token)
            before = token
            inside = any(scope is None for scope in scopes)
            if token == "{":
                names = None
                if not inside and not depth:
                    names = self.opening(head, scopes, hidden)
                scopes.append(names)
                hidden.append(names == ())
                if not inside and names is not None:
                    head = []
            elif token == "}":
                if scopes:
                    scopes.pop()
                    hidden.pop()
                if not any(scope is None for scope in scopes) and not depth:
                    # The end of a function or type; variables of it may follow.
                    head = [";"] if head else head
            elif inside:
                if head[:1] == ["enum"] and kind == "word":
                    self.enumerator(head, token, scopes, hidden)
            elif token == ";" and not depth:
                self.ending(head, scopes, hidden)
                head = []
            else:
                depth += (token in "([") - (token in ")]")
                if head == [";"]:
                    head = []
                head.append('""' if kind in ("raw", "string") else token)

    def directive(self, line):
        match = DIRECTIVE.match(line)
        if not match:
            self.used.update(re.findall(r"[A-Za-z_]\w*", line))
        elif match[1] == "include":
            if match[2][0] == '"':
                self.includes.append(match[2][1:-1])
        elif match[1] == "define":
            self.macros.add(match[2])
            self.used.update(re.findall(r"[A-Za-z_]\w*", line[match.end():]))

    def opening(self, head, scopes, hidden):
        """What a brace opens: a namespace's names, or None; declares what it is the body of."""
        if "namespace" in head[:2]:
            return tuple(w for w in head[head.index("namespace") + 1:] if w != "::")
        if head[:2] == ["extern", '""']:
            return ("",)  # declarations as outside; the name is dropped in where()
        self.declare(head, scopes, hidden)
        return None

    def ending(self, head, scopes, hidden):
        if head[:2] == ["using", "namespace"]:
            self.opened.add("".join(head[2:]))
        elif head[:1] == ["using"] and "=" not in head:
            if head:
                self.shared[self.where(scopes), head[-1]] = "".join(head[1:])
                self.own.add((self.where(scopes), head[-1]))
                self.declared.add((self.where(scopes), head[-1]))
        else:
            self.declare(head, scopes, hidden)

    @staticmethod
    def where(scopes):
        return tuple(name for scope in scopes if scope for name in scope if name)

    def declare(self, head, scopes, hidden):
        own = any(hidden) or "static" in head[:3]
        for name in names_of(head):
            self.declared.add((self.where(scopes), name))
            if own:
                self.own.add((self.where(scopes), name))

    def enumerator(self, head, token, scopes, hidden):
        if head[1:2] not in (["class"], ["struct"]):
            place = self.where(scopes)
            self.declared.add((place, token))
            if any(hidden):
                self.own.add((place, token))


def names_of(head):
    """The names that a declaration gives, from its words up to the body or the semicolon."""
    head = without_template(head)
    if not head:
        return []
    if head[0] == "using":
        return head[1:2]
    # A macro that makes a declaration: TEST_F(Suite, Name), MATCHER_P(Name, …), Q_DECLARE…(Type)
    if len(head) > 2 and head[1] == "(" and re.fullmatch(r"[A-Z][A-Z0-9_]+", head[0]):
        arguments = [w for w in head[2:] if re.fullmatch(r"[A-Za-z_]\w*", w)]
        return ["_".join(arguments[:2])] if "TEST" in head[0] else arguments[:1]
    words = [w for w in head if w not in ("static", "inline", "constexpr", "const")]
    if words and words[0] in KINDS:
        for word in words[1:]:
            if re.fullmatch(r"[A-Za-z_]\w*", word) and word not in NOT_NAMES and word != "final":
                return [word]
        return []
    # A function's or variable's: the word before the first bracket, "=" or the end, outside <…>.
    angles, last, out = 0, "", []
    for i, word in enumerate(head):
        if word == "<":
            angles += 1
        elif word == ">":
            angles -= 1
        elif angles <= 0 and word in ("(", "[", "=", "{", ","):
            if word == "(" and last in ("decltype", "alignas", "__attribute__", "noexcept"):
                continue
            break
        elif angles <= 0 and re.fullmatch(r"[A-Za-z_]\w*", word):
            last = word if head[i - 1:i] != ["::"] else ""
            continue
        if word == "::":
            last = ""
    if last and last not in NOT_NAMES and len(head) > 1:
        out.append(last)
    return out


def without_template(head):
    while head[:1] == ["template"]:
        angles = 0
        for i, word in enumerate(head):
            angles += (word == "<") - (word == ">")
            if i and not angles:
                break
        head = head[i + 1:]
    while head[:1] == ["["]:  # an attribute
        head = head[head.index("]") + 1:] if "]" in head else []
        head = head[1:] if head[:1] == ["]"] else head
    return head


@functools.lru_cache(None)
def source(path):
    return Source((ROOT / path).read_text(encoding="utf-8", errors="replace"))


@functools.lru_cache(None)
def headers(path):
    """The repository's headers that a file reads, and those that they read."""
    seen, todo = set(), [path]
    while todo:
        for name in source(todo.pop()).includes:
            if name.endswith(".h") and name not in seen and (ROOT / name).is_file():
                seen.add(name)
                todo.append(name)
    return frozenset(seen)


@functools.lru_cache(None)
def of_headers(path):
    """(namespace, name) that its headers declare, macros as (None, name)."""
    out = set()
    for name in headers(path):
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
        print(__doc__.strip(), file=sys.stderr)
        return 2
    for line in sys.stdin:
        target, *paths = line.split()
        for group in groups(paths, int(sys.argv[1])):
            print(target, *group)
    return 0


if __name__ == "__main__":
    sys.exit(main())
