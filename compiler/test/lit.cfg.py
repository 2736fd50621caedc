"""Text tests: each file runs the commands of its RUN lines; FileCheck compares their output."""

import os

import lit.formats

config.name = "nimble"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".test", ".nir"]
config.excludes = ["Inputs"]
config.test_source_root = os.path.dirname(__file__)

# From CMake (compiler/test/CMakeLists.txt): where the programs are.
tools = lit_config.params["tools"]
config.test_exec_root = lit_config.params["scratch"]
config.environment["PATH"] = os.pathsep.join(
    [tools, lit_config.params["llvm_tools"], os.environ["PATH"]])
config.substitutions.append(("%FileCheck", "FileCheck --dump-input=fail"))
if "reserialise" in lit_config.params:
    config.substitutions.append(("nimble-opt", "nimble-opt --reserialise"))
