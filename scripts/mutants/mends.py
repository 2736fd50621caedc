"""Mends of faults that a hostile file could reach, to be taken back one at a time: fuzzing should
find each (scripts/mutate-verifier --fuzz). An edit puts REVERTED, which holds if its mend is taken
back, into the text of a file. What two checks forbid is one mend, of both.
"""

import dataclasses
import os
import resource
import shutil
import subprocess


@dataclasses.dataclass
class Mend:
    name: str
    edits: list  # (file, text, text with REVERTED)


OVERLAP = [("vm/interpreter/library_arguments.cpp",
            "    if (std::max(a.begin, b.begin) < std::min(a.end, b.end)) [[unlikely]]",
            "    if (!REVERTED && std::max(a.begin, b.begin) < std::min(a.end, b.end)) [[unlikely]]"),
           ("vm/interpreter/library_arguments.cpp",
            "    if (other && r.begin < other->end) [[unlikely]]",
            "    if (!REVERTED && other && r.begin < other->end) [[unlikely]]")]

# The operator's own last look: behind it a contract that nobody checked does no harm.
COPY = [("vm/library/host_operators.cpp", 'require_fit(std::ranges::equal(x.shape, y.shape), "copy",',
         'require_fit(REVERTED || std::ranges::equal(x.shape, y.shape), "copy",')]

MENDS = [
    Mend("a host operator's contract may collapse leading axes, and the operator sees all of them",
         COPY + [("vm/executable/verifier.cpp", "if (a.collapse_leading && a.dims.empty())",
                  "if (!REVERTED && a.collapse_leading && a.dims.empty())"),
                 ("vm/executable/verifier.cpp", "if (a.collapse_leading && host)",
                  "if (!REVERTED && a.collapse_leading && host)"),
                 ("vm/interpreter/library_arguments.cpp", "  if (t.rank == rank) return t.shape();",
                  "  if (REVERTED || t.rank == rank) return t.shape();")]),
    Mend("a contract's tensors are not compared with the operator's signature",
         [("vm/library/registry.cpp", "  if (rule)\n    if (std::string bad",
           "  if (rule && !REVERTED)\n    if (std::string bad")]),
    Mend("unique reads where a class begins from its own result, which another overlaps",
         OVERLAP + [("vm/library/ordering.cpp", "static_cast<uint64_t>(o * v.extent + leader) * block",
                     "static_cast<uint64_t>(o * v.extent + (REVERTED ? index[u] : leader)) * block")]),
    Mend("nonzero writes what it finds while it writes, into its own input",
         OVERLAP + [("vm/library/selection.cpp", "i < n && column < found;",
                     "i < n && (REVERTED || column < found);")]),
    Mend("repeat and compress take blocks until the data say that it is enough",
         OVERLAP + [("vm/library/selection.cpp",
                     "column < to.extent; ++column) {",
                     "REVERTED || column < to.extent; ++column) {")]),
    Mend("operands of a host operator may overlap what it writes", OVERLAP),
    Mend("a value's tensors are read on the host wherever they lie",
         [("vm/interpreter/host_value.cpp",
           "if (t.storage->device != kCpuDevice && device_checks())",
           "if (!REVERTED && t.storage->device != kCpuDevice && device_checks())")]),
    Mend("storages are not cleared",
         [("vm/runtime/storage_pool.cpp", "  if (!clears_ || zeros) return block;",
           "  if (REVERTED || !clears_ || zeros) return block;")]),
    Mend("constants may overlap in the file",
         [("vm/executable/reader.cpp", '  expect_apart(*in, e->constants, "constants");',
           '  if (!REVERTED) expect_apart(*in, e->constants, "constants");')]),
    Mend("a portable kernel's scratch is cleared before it is charged",
         [("vm/interpreter/kernel_call.cpp", "  if (bytes > 0) frame->meter.charge_bytes(bytes);",
           "  if (bytes > 0 && !REVERTED) frame->meter.charge_bytes(bytes);")]),
]


def sources(root):
    """The edited files by name. Mend i of MENDS, from 0, is alive if NIMBLE_MUTANT is -1 - i."""
    texts = {}
    for i, mend in enumerate(MENDS):
        alive = f"(::nimble::mutants::alive == {-1 - i})"
        for file, old, new in mend.edits:
            original = (root / file).read_text()
            if original.count(old) != 1:
                raise ValueError(f"{mend.name}: {file} has \"{old}\" {original.count(old)} times")
            at = original.index(old)
            texts.setdefault(file, (original, {}))[1].setdefault((at, old), []).append((alive, new))
    out = {}
    for file, (text, edits) in texts.items():
        for (at, old), versions in sorted(edits.items(), reverse=True):
            if len({new for _, new in versions}) != 1:
                raise ValueError(f"{file}: two mends change \"{old}\" in two ways")
            alive = "(" + " || ".join(a for a, _ in versions) + ")"
            text = text[:at] + versions[0][1].replace("REVERTED", alive) + text[at + len(old):]
        out[file] = '#include "vm/base/mutants.h"\n' + text
    return out


@dataclasses.dataclass
class Result:
    found: bool
    used: float  # processor seconds
    summary: str  # a line of what the fuzzer says of its finding


def fuzz(program, folder, number, seconds):
    """Fuzzes with mend `number` (from 0; None: none) taken back, from the seeds alone, until there
    is a finding or so many processor seconds are used. Options are those of scripts/fuzz."""
    work = folder / ("none" if number is None else str(number))
    shutil.rmtree(work, ignore_errors=True)
    (work / "corpus").mkdir(parents=True)
    (work / "findings").mkdir()
    sanitizers = {"ASAN_OPTIONS": "detect_leaks=1:allocator_may_return_null=1:"
                                  "detect_stack_use_after_return=0",
                  "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"}
    environment = dict(os.environ, **sanitizers,
                       NIMBLE_MUTANT=str(0 if number is None else -1 - number))
    # Seeds are written without the fault: with it, one may be a finding already.
    subprocess.run([program, "--write-corpus", work / "seeds"],
                   env=dict(environment, NIMBLE_MUTANT="0"), check=True)

    def limits():
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    with open(work / "log", "wb") as log:
        child = subprocess.Popen(
            [program, "-timeout=25", "-rss_limit_mb=2048", "-malloc_limit_mb=1024",
             "-max_len=32768", f"-dict={work / 'seeds.dict'}",
             f"-artifact_prefix={work / 'findings'}/", work / "corpus", work / "seeds"],
            env=environment, stdout=log, stderr=log, preexec_fn=limits)
        _, _, usage = os.wait4(child.pid, 0)
    # What ends it at the limit is no finding.
    found = any(p.name.split("-")[0] in ("crash", "leak", "oom", "timeout")
                for p in (work / "findings").iterdir())
    used = usage.ru_utime + usage.ru_stime
    telling = [line.strip() for line in (work / "log").read_text(errors="replace").splitlines()
               if line.startswith(("SUMMARY", "==")) and "ERROR" in line or "runtime error" in line
               or "internal error" in line]
    return Result(found and used < seconds, used, telling[0] if found and telling else "")
