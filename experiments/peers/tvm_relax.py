"""TVM: a Relax module with a symbolic length, compiled by LLVM, on the Relax virtual machine."""

import tvm

from experiments.harness.experiment import BUILD
from experiments.peers import tvm_build


class Peer:
    """See experiments/harness/worker.py for when which method is called."""

    def __init__(self, experiment, threads, options):
        if experiment.make_tvm is None:
            raise NotImplementedError("the experiment has no Relax module")
        folder = BUILD / experiment.name / "tvm"
        # One build for all cases.
        tvm_build.build(experiment, max(experiment.threads), folder,
                        options["tvm_seconds"])
        self.report = tvm_build.read_report(folder)
        machine = tvm.relax.VirtualMachine(
            tvm.runtime.load_module(str(folder / "model.so")), tvm.cpu())
        self.call = tvm_build.drive(experiment, machine)
        self.threads = threads

    def version(self):
        return tvm.__version__

    def settings(self):
        return (f"Relax, LLVM {self.report['mcpu']}, {self.threads} threads; MetaSchedule with the "
                f"symbolic length: {self.report['tuning']}")

    def bind(self, inputs):
        self.inputs = [tvm.runtime.tensor(array) for array in inputs.values()]

    def run(self):
        self.result = self.call(*self.inputs)

    def output(self, name):
        return self.result.numpy()
