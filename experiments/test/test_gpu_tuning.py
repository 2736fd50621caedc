"""The tuning campaign of `scripts/gpu-check` (experiments/gpu/tuning.py), with a stand-in for
nimble's worker."""

import json
import os
import pathlib
import sqlite3
import sys
import tempfile
import textwrap
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from experiments.gpu import check, tuning  # noqa: E402

TABLES = """
CREATE TABLE workload (hash TEXT, op TEXT);
CREATE TABLE shape (hash TEXT, dims TEXT);
CREATE TABLE config (hash TEXT, json TEXT);
CREATE TABLE trial (workload TEXT, config TEXT, shape TEXT, role TEXT, state TEXT,
                    error_class TEXT DEFAULT '', median_ns REAL);
INSERT INTO workload VALUES ('w', 'matmul');
INSERT INTO shape VALUES ('s', 'n=19');
INSERT INTO config VALUES ('d', '{"tile":1}'), ('a', '{"tile":2}'), ('b', '{"tile":4}');
INSERT INTO trial (workload, config, shape, role, state, error_class) VALUES
  ('w', 'd', 's', 'baseline', 'queued', ''), ('w', 'a', 's', 'search', 'queued', ''),
  ('w', 'b', 's', 'search', 'compile_failed', 'pruned');
"""
# What the worker is started with it checks itself.
WORKER = """\
#!{python}
import json, os, signal, sqlite3, stat, sys, time
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
assert options["--device"] == "gpu" and options["--jobs-for"] == "any GPU of sm_90a", options
assert options["--max-idle"] == "0", options
keys = os.environ["NIMBLE_KEYS"]
assert stat.S_IMODE(os.stat(keys).st_mode) == 0o700
assert stat.S_IMODE(os.stat(keys + "/trusted_keys").st_mode) == 0o600
assert os.environ["LD_LIBRARY_PATH"].split(":")[0] == {folder!r}
database = sqlite3.connect(options["--db"])
database.execute("PRAGMA journal_mode = WAL")
{body}
print(json.dumps(dict(jobs=1, trials=2)))
"""
MEASURES = """\
database.execute("UPDATE trial SET state = 'ok', median_ns = 2000 WHERE config = 'd'")
database.execute("UPDATE trial SET state = '{}', median_ns = 1500 WHERE config = 'a'")
database.commit()
database.close()
"""
HANGS = """\
def stop(*_):
    print("{}")
    sys.exit(130)
signal.signal(signal.SIGTERM, stop)
database.execute("UPDATE trial SET state = 'ok', median_ns = 2000 WHERE config = 'd'")
database.commit()
time.sleep(60)
"""


class Campaign(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out = self.folder / "out"
        self.packed = self.folder / tuning.FOLDER
        self.packed.mkdir()
        database = sqlite3.connect(self.packed / tuning.DATABASE)
        database.executescript(TABLES)
        database.close()
        (self.packed / "trusted_keys").write_text("key\n")
        (self.packed / "trusted_keys").chmod(0o666)  # as it may arrive
        (self.packed / "tuning.json").write_text(json.dumps(
            {"campaign": "c", "model": "bert-base", "jobs_for": "any GPU of sm_90a"}))
        (self.packed / "nimble-worker").write_text("")

    def worker(self, body):
        (self.packed / "nimble-fleet-worker").write_text(WORKER.format(
            python=sys.executable, folder=str(self.folder), body=textwrap.dedent(body)))

    def run_it(self, body, seconds=60):
        self.worker(body)
        return tuning.run(self.folder, self.out, seconds)

    def test_measured(self):
        found = self.run_it(MEASURES.format("ok"))
        self.assertNotIn("failed", found)
        self.assertEqual(found["worker"], {"jobs": 1, "trials": 2})
        self.assertEqual(found["states"], {"ok": 2, "pruned": 1})
        self.assertEqual(found["rows"], [{"kernel": "matmul", "workload": "w", "size": "n=19",
                                          "ns": 1500, "default_ns": 2000, "config": {"tile": 2}}])
        self.assertTrue(tuning.is_whole(found))
        self.assertFalse(tuning.is_wrong(found))
        page = "\n".join(tuning.lines(found))
        self.assertIn("2 ok, 1 pruned; it was done", page)
        self.assertIn("| matmul w | n=19 | 2.0 | 1.5 | 0.75 |", page)
        # The records are one file, and what was packed is as it was: it runs again.
        self.assertEqual(sorted(f.name for f in self.out.iterdir()), [tuning.RECORDS])
        self.assertEqual(tuning.summary(self.packed / tuning.DATABASE)["states"],
                         {"pruned": 1, "queued": 2})
        self.assertEqual(self.run_it(MEASURES.format("ok"))["states"], found["states"])

    def test_a_wrong_candidate_is_told(self):
        found = self.run_it(MEASURES.format("wrong"))
        self.assertTrue(tuning.is_wrong(found))
        self.assertEqual(found["rows"][0]["ns"], 2000, "what is wrong has no time")

    def test_time_is_up(self):
        found = self.run_it(HANGS, seconds=5)  # to start in, wherever this runs
        self.assertEqual((found["ended"], found["exit_code"]), ("no time was left", 130))
        self.assertEqual(found["states"], {"ok": 1, "pruned": 1, "queued": 1})
        self.assertTrue(tuning.is_whole(found), "what there was time for counts")

    def test_the_worker_fails(self):
        found = self.run_it("sys.exit('there is no GPU to measure on')")
        self.assertEqual(found["exit_code"], 1)
        self.assertIn("there is no GPU", found["failed"])
        self.assertFalse(tuning.is_whole(found))
        self.assertIn("there is no GPU", "\n".join(tuning.lines(found)))

    def test_nothing_runs_on_this_gpu(self):
        found = self.run_it("""\
            passed = [{"campaign": "c", "reason": "is code for sm_90a"}]
            print(json.dumps(dict(jobs=0, trials=0, passed_over=passed)))
            sys.exit(0)
            """)
        self.assertIn("is code for sm_90a", found["failed"])
        self.assertFalse(tuning.is_whole(found))

    def test_as_a_part(self):
        for body, code in ((MEASURES.format("ok"), 0), (MEASURES.format("wrong"), 3),
                           ("sys.exit('no GPU')", 1)):
            self.worker(body)
            with mock.patch.dict(os.environ), mock.patch("builtins.print"):
                self.assertEqual(check.main([str(self.folder), "--out", str(self.out), "--parts",
                                             "tuning"]), code)
            self.assertIn("A tuning campaign", (self.out / "gpu.md").read_text())


PROGRAM = """\
#!{python}
import os, pathlib, sys
keys = pathlib.Path(os.environ["NIMBLE_KEYS"])
if sys.argv[1:3] == ["new", "gpu-check"]:
    keys.mkdir()
    (keys / "gpu-check.key").write_text("secret")
    (keys / "trusted_keys").write_text("public")
elif sys.argv[1] == "pack":
    words = sys.argv[3:]
    options = dict(zip(words[::2], words[1::2]))
    assert options["--target"] == "sm_90a" and options["--candidates"] == "5", options
    assert (keys / (options["--key"] + ".key")).exists()
    path, column = options["--trace"].rsplit(":", 1)
    assert pathlib.Path(path).read_text().split()[0] == column
    pathlib.Path(options["--db"]).write_text(sys.argv[2])
    print("0123-uuid")
"""


class Packing(unittest.TestCase):
    def test_what_travels(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            programs = root / "build" / "bin"
            programs.mkdir(parents=True)
            for name in ("nimble-keys", "nimble-campaigns", *tuning.PROGRAMS):
                (programs / name).write_text(PROGRAM.format(python=sys.executable))
                (programs / name).chmod(0o755)
            work, out = root / "work", root / "out"
            work.mkdir()
            model = mock.Mock(source=lambda _: "bert.onnx", options=())
            model.name = "bert-base"
            with mock.patch.object(tuning, "ROOT", root), mock.patch("builtins.print"), \
                    mock.patch.object(tuning, "libraries_of", lambda _: {}):
                for _ in range(2):  # the key is made once
                    tuning.pack(out, work, model, 5, "sm_90a")
            packed = out / tuning.FOLDER
            self.assertEqual(sorted(f.name for f in packed.iterdir()),
                             sorted([*tuning.PROGRAMS, tuning.DATABASE, "trusted_keys",
                                     "tuning.json"]), "and no secret")
            self.assertEqual((packed / tuning.DATABASE).read_text(), "bert.onnx")
            self.assertEqual(json.loads((packed / "tuning.json").read_text()),
                             {"campaign": "0123-uuid", "model": "bert-base",
                              "jobs_for": "any GPU of sm_90a"})


if __name__ == "__main__":
    unittest.main()
