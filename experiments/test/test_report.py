"""Tests of experiments/report and of the tables that runs write, with numpy alone."""

import html.parser
import json
import pathlib
import tempfile
import unittest

from experiments.harness import markdown, page, report, run, statistics
from experiments.harness.errors import WRONG_RESULT, ExperimentError
from experiments.studies import output


def entry(length, times, count=2):
    peers = [name for name in times if name != "nimble"]
    found, comparison = statistics.summarize(
        {name: [value] * 3 for name, value in times.items()}, peers, "nimble")
    return {"length": length, "count": count, "systems": found, **comparison}


def result():
    cases = [
        run.summarize_case("m, 1 thread", 1, ["torch", "tvm", "mxnet"],
                           [entry(10, {"torch": 200, "tvm": 900, "nimble": 100}),
                            entry(20, {"torch": 300, "nimble": 200}, count=1)],
                           {"tvm": "stopped after 60 s, with 1 of 2 lengths",
                            "mxnet": "ImportError: no <mxnet> | at all"})]
    return {"title": "M", "command": "experiments/run m", "date": "2026-01-01T00:00",
            "experiment": "m", "timed": "a call", "tolerance": 1e-5, "tuned_for_lengths": [10, 12],
            "commit": "abc", "effort": {}, "machine": {
                "cpu": "C <1>", "features": ["avx2"], "cores": [0], "cores_available": 2,
                "caches": {"L1 Data": "32K"}, "memory_bytes": 2**34, "kernel": "6",
                "load_before": 0.1},
            "systems": {"torch": {"version": "2", "settings": "eager"}}, "cases": cases}


class Balanced(html.parser.HTMLParser):
    """Fails on an element that is not closed, and notes what would be fetched from elsewhere."""

    def __init__(self):
        super().__init__()
        self.open, self.fetched = [], []

    def handle_starttag(self, tag, attributes):
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)
        for name, value in attributes:
            if name in ("src", "href") and not value.startswith(("data:", "#")):
                self.fetched.append(value)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            raise AssertionError(f"</{tag}> closes nothing")


def parsed(text):
    reader = Balanced()
    reader.feed(text)
    return reader


class Cases(unittest.TestCase):
    def test_us_per_token_is_total_time_by_total_tokens(self):
        case = result()["cases"][0]
        self.assertAlmostEqual(case["us_per_token"]["torch"], (2 * 200 + 300) / (2 * 10 + 20))
        self.assertAlmostEqual(case["us_per_token"]["tvm"], 90)  # of the lengths that it reached

    def test_ratios_hold_over_the_lengths_that_a_peer_reached(self):
        case = result()["cases"][0]
        self.assertAlmostEqual(case["ratio_to"]["tvm"], 9)
        self.assertAlmostEqual(case["ratio_to"]["torch"], (2 ** 2 * 1.5) ** (1 / 3))
        self.assertNotIn("mxnet", case["ratio_to"])
        self.assertEqual(case["lowest_ratio"], 1.5)

    def test_lengths_that_never_occur_count_alike(self):
        case = run.summarize_case("m", 1, ["torch"], [
            entry(10, {"torch": 100, "nimble": 50}, 0), entry(30, {"torch": 100, "nimble": 50}, 0)],
            {})
        self.assertAlmostEqual(case["us_per_token"]["torch"], 5)
        self.assertAlmostEqual(case["ratio_to_best_peer"], 2)

    def test_every_prefix_of_the_order_is_spread(self):
        order = run.from_the_middle(range(1, 8))
        self.assertEqual(order, [4, 2, 6, 1, 3, 5, 7])
        self.assertEqual(sorted(run.from_the_middle([3, 9])), [3, 9])
        self.assertEqual(run.from_the_middle([5]), [5])


class Tables(unittest.TestCase):
    def test_text_shows_missing_systems_and_errors(self):
        text = report.table(result()["cases"][0])
        self.assertIn("-", text.splitlines()[3].split())  # tvm at 20
        self.assertIn("MXNet: ImportError", text)

    def test_page_lists_each_system_with_its_error(self):
        text = report.markdown(result())
        self.assertIn("| nimble | 10.0 |", text)
        self.assertIn("| PyTorch eager | 17.5 (1.82) |", text)
        self.assertIn("| MXNet | – [2] |", text)
        self.assertIn("[2] MXNet: ImportError: no <mxnet> | at all.", text)
        self.assertIn("other lengths than those reported: 10, 12", text)

    def test_page_tells_where_the_schedules_come_from(self):
        run_with = {**result(), "executables": {"nimble": "digest"}}
        for more, text in (({"untuned": True, "tuning_budget": None}, "it was not tuned."),
                           ({"untuned": False, "tuning_budget": "5m"}, "was tuned for 5m ahead"),
                           ({"untuned": False, "tuning_budget": None},
                            "nothing was tuned for this run.")):
            self.assertIn(text, report.markdown({**run_with, **more}))
        self.assertEqual(report.tuning_text({"executables": {}, "untuned": True}), "")

    def test_long_lists_of_lengths_are_cut(self):
        self.assertEqual(report.spans(range(20, 40, 2)), "20, 22, …, 38")


class Interrupted(unittest.TestCase):
    """What a run that was interrupted has left."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "m.partial.json"

    def test_it_goes_on_with_the_same_settings_alone(self):
        report.write_json(self.path, {"settings": {"threads": 2, "seed": 1}, "records": [7]})
        self.assertEqual(report.read_partial(self.path, {"threads": 2})["records"], [7])
        with self.assertRaisesRegex(ExperimentError, "other settings .threads, cpu.; run without"):
            report.read_partial(self.path, {"threads": 1, "seed": 1, "cpu": "x"})

    def test_what_is_cut_off_is_refused(self):
        for text in ("", '{"settings": {"thr'):
            self.path.write_text(text)
            with self.assertRaisesRegex(ExperimentError, "not JSON .*run without --resume"):
                report.read_partial(self.path, {})


class Verdict(unittest.TestCase):
    def test_one_bar_that_is_not_kept_decides(self):
        self.assertEqual(output.verdict([]), 0)
        self.assertEqual(output.verdict([{"kept": True}, {"kept": True}]), 0)
        self.assertEqual(output.verdict([{"kept": True}, {"kept": False}]), WRONG_RESULT)


class Markdown(unittest.TestCase):
    def test_markup_of_a_message_is_escaped(self):
        text = markdown.to_html("a <script> & `b<c` **d**")
        self.assertEqual(text, "<p>a &lt;script&gt; &amp; <code>b&lt;c</code> <b>d</b></p>")

    def test_tables_align_and_keep_escaped_bars(self):
        text = markdown.to_html("| a | b |\n|---|---:|\n| x \\| y | 1 |")
        self.assertIn("<td>x | y</td><td class=r>1</td>", text)

    def test_blocks(self):
        text = markdown.to_html("# t\n\none\ntwo\n- a\n- b\n```\n<x>\n```\n| no table")
        self.assertEqual(text.splitlines(), [
            "<h3>t</h3>", "<p>one two</p>", "<ul><li>a</li><li>b</li></ul>",
            "<pre>&lt;x&gt;</pre>", "<p>| no table</p>"])
        self.assertFalse(parsed(text).open)


class Page(unittest.TestCase):
    def page(self, parts=False, stem="lstm"):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / f"{stem}.json").write_text(json.dumps(result()))
            (folder / f"{stem}.md").write_text(report.markdown(result()))
            (folder / f"{stem}.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
            return page.page(["lstm", "budget"], folder, parts)

    def test_needs_no_other_file_and_is_well_formed(self):
        text, missing = self.page()
        reader = parsed(text)
        self.assertEqual((reader.open, reader.fetched), ([], []))
        self.assertEqual(missing, ["budget"])
        self.assertIn("data:image/svg+xml;base64,", text)
        self.assertIn("C &lt;1&gt;", text)
        self.assertIn("16.0 GiB", text)

    def test_the_papers_figures_stand_beside(self):
        text, _ = self.page()
        self.assertIn("Table 1 of the paper", text)
        self.assertIn("<td>DyNet</td><td class=r>936.4</td>", text)

    def test_a_part_is_shown_only_if_asked_for_and_says_so(self):
        self.assertEqual(self.page(stem="lstm-part")[1], ["lstm", "budget"])
        text, missing = self.page(parts=True, stem="lstm-part")
        self.assertEqual(missing, ["budget"])
        self.assertIn("left something out", text)

    def test_bars_stand_on_top_with_their_verdicts(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "regret.json").write_text(json.dumps({"bars": [
                {"name": "r <1>", "value": 0.0312, "most": 0.02, "kept": False},
                {"name": "shapes", "value": 300, "least": 300, "kept": True},
                {"name": "none", "value": None, "most": 1, "kept": False}]}))
            (folder / "claims.json").write_text(json.dumps({"claims": [
                {"claim": "c", "found": "f", "holds": True}]}))
            (folder / "lstm.json").write_text(json.dumps(result()))
            text, _ = page.page(["lstm", "regret", "claims"], folder, False)
        parsed(text)
        top = text[:text.index("<h2 id='lstm'>")]
        self.assertIn("<td>r &lt;1&gt;</td><td>0.0312</td><td>at most 0.02</td>"
                      "<td class=missing>not kept</td>", top)
        self.assertIn("<td>shapes</td><td>300</td><td>at least 300</td><td>kept</td>", top)
        self.assertIn("<td>none</td><td>–</td>", top)
        self.assertIn("<td>c</td><td>f</td><td></td><td>kept</td>", top)
        self.assertIn("<td>m, 1 thread: best peer / nimble</td><td>1.817, lowest 1.500</td>", top)

    def test_speeds_are_held_against_what_is_asked_of_them(self):
        case = result()["cases"][0]  # ratios 2 at 10, 1.5 at 20, by occurrence 1.817
        name = case["name"]
        asked = [{"case": name, "least": 1.8}, {"case": name, "least": 1.9},
                 {"case": name, "from": 1, "to": 15, "least": 2},
                 {"case": name, "from": 1, "to": 20, "least": 2},
                 {"case": name, "from": 30, "to": 40, "least": 0.1},
                 {"case": name, "length": 17, "least": 1.5},
                 {"case": "another", "least": 0.1}, {"case": "another", "length": 3, "least": 0.1}]
        found = page.bars_of(result(), asked)[1:]
        self.assertEqual([bar[3] for bar in found],
                         [True, False, True, False, False, True, False, False])
        self.assertEqual(found[3][:3], (f"{name}: best peer / nimble, lowest of 2 lengths from 1 to "
                                        "20", "1.5", "at least 2"))
        self.assertIn("at 20, the nearest to 17", found[5][0])
        self.assertEqual(found[6][1], "–")

    def test_every_bar_names_a_case(self):
        """Of the recorded results, or of the experiment: those of a new case come with its run."""
        for name in page.experiments.NAMES:
            asked = page.asked_of(name)
            if not asked:
                continue
            experiment = page.experiments.load(name)
            known = {f"{one.case or one.name}, {run.count_threads(threads)}"
                     for one in (experiment, *experiment.variants) for threads in one.threads}
            recorded = page.read_json(page.RESULTS / f"{name}.json")
            known |= {case["name"] for case in recorded["cases"]} if recorded else set()
            for bar in asked:
                self.assertIn(bar["case"], known)
                self.assertTrue(bar["least"] > 0 and ("from" in bar) == ("to" in bar))

    def test_results_under_a_label_follow_their_experiment(self):
        names = ["budget", "budget-more"]
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            for stem in ("budget", "budget-exporters", "budget-part", "budget-more",
                         "budget-more-x", "budget.partial"):
                (folder / f"{stem}.json").write_text("{}")
                (folder / f"{stem}.md").write_text(f"text of {stem}.")
            self.assertEqual(page.labelled_stems("budget", folder, names), ["budget-exporters"])
            self.assertEqual(page.labelled_stems("budget-more", folder, names), ["budget-more-x"])
            (folder / "budget-exporters.json").write_text(json.dumps({"bars": [
                {"name": "of a label", "value": 2, "most": 1, "kept": False}]}))
            text, _ = page.page(names, folder, False)
        self.assertFalse(parsed(text).open)
        self.assertIn("text of budget-exporters.", text)
        self.assertNotIn("text of budget-part.", text)
        top = text[:text.index("<h2 id='budget'>")]
        self.assertIn("<td><a href='#budget-exporters'>budget-exporters</a></td>"
                      "<td>of a label</td><td>2</td><td>at most 1</td>", top)
        self.assertIn("<h3 id='budget-exporters'>", text)

    def test_bars_of_a_part_are_called_so_and_what_was_not_run_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "regret-part.json").write_text(json.dumps({"bars": [
                {"name": "shapes", "value": 3, "least": 0, "kept": True}]}))
            with_parts, _ = page.page(["regret", "method"], folder, True)
            without, _ = page.page(["regret", "method"], folder, False)
        for text in (with_parts, without):
            self.assertFalse(parsed(text).open)
            self.assertIn("<td><a href='#method'>method</a></td><td>not run</td>", text)
        self.assertIn("<td><a href='#regret-part'>regret-part</a></td><td>shapes</td>", with_parts)
        self.assertIn("<a id='regret-part'></a>", with_parts)
        self.assertNotIn("regret-part", without)
        self.assertIn("<td><a href='#regret'>regret</a></td><td>not run</td>", without)

    def test_each_study_has_a_section(self):
        with tempfile.TemporaryDirectory() as folder:
            text, missing = page.page(page.experiments.PROGRAMS, pathlib.Path(folder), False)
        for name in ("churn", "claims", "figure3", "memory-study", "method", "regret",
                     "repeatability", "roofline", "table4"):
            self.assertIn(f"<h2 id='{name}'>", text)
            self.assertIn(name, missing)

    def test_papers_quote_as_many_figures_as_columns(self):
        found = [paper for name in (*page.experiments.NAMES, *page.experiments.PROGRAMS)
                 for paper in page.papers_of(name)]
        self.assertTrue({"Table 1", "Table 2", "Table 3"} <= {paper["table"] for paper in found})
        for paper in found:
            for label, values in paper["rows"].items():
                self.assertEqual(len(values), len(paper["columns"]), f"{paper['table']}: {label}")


if __name__ == "__main__":
    unittest.main()
