"""Which sources scripts/unity_groups.py puts together."""

import importlib.util
import pathlib
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def load():
    spec = importlib.util.spec_from_file_location("unity_groups", ROOT / "scripts/unity_groups.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Names(unittest.TestCase):
    def own(self, text):
        return {name for _, name in load().Source(text).own}

    def test_what_a_file_keeps_to_itself(self):
        self.assertEqual(self.own("""
            namespace nimble::vm {
            namespace {
            constexpr int kSizes[] = {1, 2};
            const char* const kText = R"ASM(int no { ; )ASM";
            struct Part : Base { int member; void method() { int local; } };
            enum Kind { kFirst, kSecond };
            enum class Scoped { kNeither };
            using Row = std::map<int, std::function<void(int)>>;
            template <typename T, typename U>
            std::map<T, std::function<void(U)>> table(const T& key, U value = {}) { return {}; }
            [[noreturn]] void stop();
            __attribute__((target("avx2"))) void wide(int) {}
            std::unordered_map<int, int> cache;
            bool operator==(const Part&, const Part&) { return true; }
            static_assert(sizeof(Part) == 4);
            TEST_F(Suite, Name) { int local; }
            MATCHER_P(HasRows, n, "has rows") { return true; }
            }  // namespace
            void shared(int a) {}
            static int hidden() { return '{'; }
            int Part::outside() { return 0; }
            using ir::Expr;
            namespace fs = std::filesystem;
            }  // namespace nimble::vm
            """), {"kSizes", "kText", "Part", "Kind", "kFirst", "kSecond", "Scoped", "Row", "table",
                   "stop", "wide", "cache", "operator", "Suite_Name", "HasRows", "hidden", "Expr",
                   "fs"})

    def test_what_it_declares_is_told_with_its_namespace(self):
        declared = load().Source("""
            extern "C" { int c_function(void); }
            namespace a { namespace b { void f(); } struct S; namespace { int own; } }
            """).declared
        self.assertEqual(declared, {((), "c_function"), (("a", "b"), "f"), (("a",), "S"),
                                    (("a",), "own")})

    def test_what_it_uses(self):
        used = load().Source("""
            #include "a/b.h"
            #define TWICE(x) twice(x)
            void f() { plain(x.member, p->member, ::global, std::qualified); }  // comment
            """).used
        self.assertLessEqual({"TWICE", "twice", "plain", "std", "f"}, used)
        self.assertFalse({"member", "global", "qualified", "comment", "b"} & used)

    def test_brackets_that_do_not_match_and_pragmas_leave_a_file_alone(self):
        source = load().Source
        self.assertTrue(source("namespace a {").alone)
        self.assertTrue(source("}").alone)
        self.assertTrue(source("#pragma GCC optimize(\"O1\")\n").alone)
        self.assertFalse(source("#pragma once\nnamespace a {}\n").alone)


class Groups(unittest.TestCase):
    def groups(self, size=6, **files):
        with tempfile.TemporaryDirectory() as folder:
            module = load()
            module.ROOT = pathlib.Path(folder)
            for name, text in files.items():
                (module.ROOT / name.replace("_h", ".h")).write_text(text)
            return module.groups([n for n in files if not n.endswith("_h")], size)

    def test_files_that_leave_each_other_alone_go_together(self):
        a, b, c = ("namespace n { namespace { int %s() { return 0; } } }" % x for x in "abc")
        self.assertEqual(self.groups(a=a, b=b, c=c), [["a", "b", "c"]])
        self.assertEqual(self.groups(size=2, a=a, b=b, c=c), [["a", "b"]])

    def test_a_name_that_both_have_keeps_them_apart(self):
        text = "namespace { int same() { return 0; } }"
        self.assertEqual(self.groups(a=text, b=text, c="int c() { return 0; }"), [["a", "c"]])

    def test_a_word_that_one_uses_and_the_other_keeps_keeps_them_apart(self):
        own = "namespace { int close(int) { return 0; } }"
        user = "void f() { close(3); }"
        self.assertEqual(self.groups(a=own, b=user), [])
        self.assertEqual(self.groups(a=user, b=own), [])
        self.assertEqual(self.groups(a="#define close shut\n", b=user), [])

    def test_the_same_using_does_no_harm(self):
        one = "namespace n { namespace { using ir::Atom; } Atom f(); }"
        two = "namespace n { namespace { using ir::Atom; } Atom g(); }"
        other = "namespace n { namespace { using kir::Atom; } Atom g(); }"
        self.assertEqual(self.groups(a=one, b=two), [["a", "b"]])
        self.assertEqual(self.groups(a=one, b=other), [])
        self.assertEqual(self.groups(a="using namespace n;", b="int b;"), [])

    def test_a_header_that_has_the_name_of_what_the_other_keeps(self):
        header = "#pragma once\nnamespace n { int size(int); }\n#define MAX 3\n"
        reads = '#include "h.h"\nnamespace n { int a() { return 0; } }'
        self.assertEqual(self.groups(
            h_h=header, a=reads, b="namespace n { namespace { int size() { return 0; } } }"), [])
        self.assertEqual(self.groups(
            h_h=header, a=reads, b="namespace m { namespace { int size() { return 0; } } }"),
            [["a", "b"]])
        self.assertEqual(self.groups(h_h=header, a=reads, b="int MAX = 0;"), [])


if __name__ == "__main__":
    unittest.main()
