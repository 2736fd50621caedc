"""Tests of scripts/fleet: python -m unittest scripts.tests.test_fleet

Those of ray-workers start a Ray cluster of several nodes on this machine; without the package ray
they are skipped.
"""

import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

FLEET = pathlib.Path(__file__).resolve().parents[1] / "fleet"
PATIENCE_S = 120  # for what a loaded machine takes


def wait_until(condition, what):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited in vain until {what}")
        time.sleep(0.05)


# In place of nimble: notes who runs where, by the process, and what it was told at its end.
WORKER = """#!/usr/bin/env python3
import os, pathlib, signal, sys, time
log = pathlib.Path({folder!r})
def note(text):
    with open(log / "log", "a") as out:
        out.write(text + "\\n")
def stop(*_):
    note(f"stopped {{os.getpid()}}")
    sys.exit(130)
signal.signal(signal.SIGTERM, stop)
node = os.environ.get("RAY_NODE_ID", "") or os.environ.get("SLURMD_NODENAME", "")
note(f"started {{os.getpid()}} {{node}} {{' '.join(sys.argv[1:])}}")
while not (log / "over").exists():
    time.sleep(0.05)
note(f"over {{os.getpid()}}")
"""


class FleetTest(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.scratch.name)
        self.program = self.folder / "nimble"
        self.program.write_text(WORKER.format(folder=str(self.folder)), encoding="utf-8")
        self.program.chmod(0o755)

    def tearDown(self):
        self.scratch.cleanup()

    def log(self, word):
        """The lines of the log that begin with `word`, as lists of words."""
        try:
            lines = (self.folder / "log").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        return [line.split() for line in lines if line.startswith(word + " ")]


class SlurmTest(FleetTest):
    """The batch script as Slurm runs it, with a scontrol that notes what it is told."""

    def start(self, *words):
        scontrol = self.folder / "scontrol"
        scontrol.write_text(f"#!/bin/sh\necho scontrol \"$@\" >> {self.folder}/log\n", encoding="utf-8")
        scontrol.chmod(0o755)
        environment = dict(os.environ, PATH=f"{self.folder}:{os.environ['PATH']}", SLURM_JOB_ID="78",
                           SLURM_ARRAY_JOB_ID="77", SLURM_ARRAY_TASK_ID="3", SLURMD_NODENAME="n12")
        return subprocess.Popen([FLEET / "slurm-worker", *words], env=environment)

    def test_help_and_wrong_usage(self):
        shown = subprocess.run([FLEET / "slurm-worker", "--help"], capture_output=True, text=True)
        self.assertEqual(shown.returncode, 0)
        self.assertIn("sbatch --array=1-16", shown.stdout)
        self.assertNotIn("#SBATCH", shown.stdout)
        self.assertEqual(subprocess.run([FLEET / "slurm-worker"], capture_output=True).returncode, 2)

    def test_a_worker_that_ends_by_itself_ends_the_job(self):
        job = self.start("postgresql://server/tuning", "--trust", "planner")
        wait_until(lambda: self.log("started"), "the worker runs")
        self.assertEqual(self.log("started")[0][2:],
                         "n12 worker --db postgresql://server/tuning --name n12-3 --max-idle 3600 "
                         "--trust planner".split())
        (self.folder / "over").touch()
        self.assertEqual(job.wait(PATIENCE_S), 0)
        self.assertEqual(self.log("scontrol"), [])

    def test_at_the_end_of_its_time_it_stops_the_worker_and_queues_itself_again(self):
        job = self.start("postgresql://server/tuning")
        wait_until(lambda: self.log("started"), "the worker runs")
        job.send_signal(signal.SIGUSR1)
        self.assertEqual(job.wait(PATIENCE_S), 0)
        self.assertEqual(len(self.log("stopped")), 1)
        self.assertEqual(self.log("scontrol"), [["scontrol", "requeue", "77_3"]])

    def test_cancelled_it_stops_the_worker_and_does_not_come_back(self):
        job = self.start("postgresql://server/tuning")
        wait_until(lambda: self.log("started"), "the worker runs")
        job.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(PATIENCE_S), 130)
        self.assertEqual(len(self.log("stopped")), 1)
        self.assertEqual(self.log("scontrol"), [])


class KubernetesTest(unittest.TestCase):
    def test_the_manifest_is_a_job_whose_parts_fit(self):
        try:
            import yaml
        except ImportError:
            self.skipTest("needs the package yaml")
        job = yaml.safe_load((FLEET / "kubernetes-worker.yaml").read_text(encoding="utf-8"))
        self.assertEqual((job["apiVersion"], job["kind"]), ("batch/v1", "Job"))
        self.assertEqual(job["spec"]["parallelism"], job["spec"]["completions"])
        pod = job["spec"]["template"]["spec"]
        volumes = {volume["name"] for volume in pod["volumes"]}
        for container in pod["containers"] + pod["initContainers"]:
            self.assertLessEqual({mount["name"] for mount in container["volumeMounts"]}, volumes)
            self.assertEqual(container["securityContext"]["capabilities"], {"drop": ["ALL"]})
        label = pod["affinity"]["podAntiAffinity"][
            "requiredDuringSchedulingIgnoredDuringExecution"][0]["labelSelector"]["matchLabels"]
        self.assertEqual(label, job["spec"]["template"]["metadata"]["labels"])


@unittest.skipUnless(importlib.util.find_spec("ray"), "needs the package ray")
class RayTest(FleetTest):
    def setUp(self):
        super().setUp()
        from ray.cluster_utils import Cluster
        self.cluster = Cluster(initialize_head=True,
                               head_node_args={"num_cpus": 1, "include_dashboard": False})
        self.nodes = [self.cluster.add_node(num_cpus=1) for _ in range(2)]
        self.cluster.wait_for_nodes()
        self.workers = None

    def tearDown(self):
        if self.workers and self.workers.poll() is None:
            self.workers.kill()
            self.workers.wait()
        self.cluster.shutdown()
        super().tearDown()

    def start(self):
        self.workers = subprocess.Popen(
            [sys.executable, FLEET / "ray-workers", "--address", self.cluster.address, "--db",
             "postgresql://server/tuning", "--program", str(self.program), "--poll", "0.2", "--",
             "--trust", "planner"])

    def running(self):
        """(process, node) of the workers that live."""
        pairs = [(int(words[1]), words[2]) for words in self.log("started")]
        return [(pid, node) for pid, node in pairs if os.path.exists(f"/proc/{pid}")]

    def test_one_worker_per_node_and_lost_ones_come_back(self):
        self.start()
        wait_until(lambda: len(self.running()) == 3, "each node has a worker")
        self.assertEqual(len({node for _, node in self.running()}), 3)
        self.assertEqual(self.log("started")[0][3:], "worker --db postgresql://server/tuning "
                         "--device cpu --trust planner".split())
        # A worker that is killed is started again on its node.
        killed, its_node = self.running()[0]
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: its_node in {node for pid, node in self.running() if pid != killed},
                   "the worker is back")
        # A node that is killed midway takes its worker along; the others go on.
        before = self.running()
        self.cluster.remove_node(self.nodes.pop(), allow_graceful=False)
        wait_until(lambda: len(self.running()) == 2, "the lost node's worker is gone")
        self.assertLess(set(self.running()), set(before))
        # One that joins gets a worker, too.
        self.nodes.append(self.cluster.add_node(num_cpus=1))
        wait_until(lambda: len({node for _, node in self.running()}) == 3, "it has a worker")
        # Told to stop, all are told.
        still = {pid for pid, _ in self.running()}
        self.workers.send_signal(signal.SIGTERM)
        self.assertEqual(self.workers.wait(PATIENCE_S), 130)
        self.assertLessEqual(still, {int(words[1]) for words in self.log("stopped")})
        self.assertEqual(self.running(), [])

    def test_it_ends_when_all_workers_have_ended_by_themselves(self):
        self.start()
        wait_until(lambda: len(self.running()) == 3, "each node has a worker")
        (self.folder / "over").touch()
        self.assertEqual(self.workers.wait(PATIENCE_S), 0)
        self.assertEqual(len(self.log("started")), 3)


if __name__ == "__main__":
    unittest.main()
