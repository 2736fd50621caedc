// Delta debugging on modules.
//
// Zeller and Hildebrandt's ddmin (Simplifying and Isolating Failure-Inducing Input, TSE 2002)
// removes chunks of a list, first large ones, then ever smaller ones, as long as what remains still
// fails; in the end no single element can be removed: the result is 1-minimal. On the text of a
// program nearly every removal leaves nonsense. So here the elements are not characters or lines
// but the sites of an edit that knows the language (edits.h): to "remove" a binding is to let a
// parameter or a constant of its type stand for it, a branch is removed by keeping the other one.
// Many edits can be applied to many sites at once, and a chunk is a range of sites:
//
//   for each edit:                        large chunks first, from the end of the module
//     chunk = all sites, half, … one      (what uses a value goes before the value)
//       candidate = best with the edit at the chunk's sites
//       if well formed, smaller, not tried before, and it still fails: best = candidate
//   until a round over all edits changes nothing
//
// The last round tries every edit at every single site: 1-minimal with respect to the table.
// Well formed means that inference accepts it, since a test that fails for a broken module would
// lead astray. Inference itself may be what crashes, so it runs in a child process; and where the
// module fails only as long as inference has not touched it (or is lowered IR, which inference
// does not know), candidates are held to parse instead.
#include "compiler/tools/reduce/reduce.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "compiler/ir/entry.h"
#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/tools/reduce/edits.h"
#include "vm/base/file.h"
#include "vm/base/hash.h"

namespace nimble::reduce {
namespace {

namespace fs = std::filesystem;

constexpr unsigned kSecondsToInfer = 20;

class Scratch {
 public:
  Scratch() {
    const fs::path root = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : fs::temp_directory_path();
    folder_ = (root / "nimble-reduce-XXXXXX").string();
    if (!mkdtemp(folder_.data()))
      throw Error(Status::kIo, folder_, "cannot be created", "set TMPDIR to a folder with room");
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::string file(const std::string& name) const { return folder_ + "/" + name; }

 private:
  std::string folder_;
};

// Writes a module as the test will see it; false if it is not well formed. In a child process:
// what is looked for may be a crash of the very functions that are called here.
bool write_well_formed(const ir::Module& m, bool infer, const std::string& path) {
  for (const std::string& old : {path, ir::side_file_of(path)}) std::remove(old.c_str());
  const pid_t child = fork();
  if (child < 0) throw Error(Status::kIo, "fork", "no process can be started", "end some others");
  if (child == 0) {
    for (int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGINT}) std::signal(signal, SIG_DFL);
    const int null = open("/dev/null", O_WRONLY);
    if (null >= 0) dup2(null, STDERR_FILENO);
    alarm(kSecondsToInfer);
    int code = 1;
    try {
      ir::write_module(infer ? ir::infer_types(m) : m, path);
      ir::read_module(path);
      code = 0;
    } catch (...) {
    }
    _exit(code);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Functions that neither an entry reaches nor an edit has just made unreachable stay out of the
// way: they go with what used them.
void drop_unreachable(ir::Module& m) {
  std::set<std::string> reached;
  std::vector<std::string> open;
  auto see = [&](const std::string& name) {
    if (m.find(name) && reached.insert(name).second) open.push_back(name);
  };
  for (const auto& [name, f] : m.functions)
    if (ir::is_entry(m, name)) see(name);
  if (reached.empty()) return;
  while (!open.empty()) {
    ir::Module one;
    one.functions = {{open.back(), m.find(open.back())}};
    open.pop_back();
    Copy(one).visit_atoms([&](ir::Atom& a) {
      if (a.is_global()) see(a.global);
    });
  }
  std::erase_if(m.functions, [&](const auto& f) { return !reached.count(f.first); });
}

class Reducer {
 public:
  Reducer(const Test& test, const Options& options)
      : test_(test), options_(options), path_(scratch_.file(options.file_name)) {}

  Outcome run(const ir::Module& m) {
    best_ = m;
    progress_.size = size_of(m);
    // The inferred module is larger on paper, but every edit is worth more on it.
    if (candidate(m, true, nullptr)) inferred_ = true;
    bool changed = true;
    while (changed && !stopped()) {
      changed = false;
      for (const Edit& edit : all_edits()) changed |= sweep(edit);
    }
    return {best_, progress_, !stopped(), inferred_};
  }

 private:
  bool stopped() const {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin_;
    return progress_.tests >= options_.most_tests || spent.count() >= options_.most_seconds ||
           (options_.interrupted && options_.interrupted());
  }

  // The best module with an edit at some sites; the number of its sites in all.
  size_t apply(const Edit& edit, size_t begin, size_t end, Copy* copy) const {
    Sites sites(begin, end);
    edit.apply(*copy, sites);
    copy->finish();
    return sites.count();
  }
  size_t count(const Edit& edit) const {
    Copy copy(best_);
    return apply(edit, 0, 0, &copy);
  }

  bool attempt(const Edit& edit, size_t begin, size_t end) {
    Copy copy(best_);
    apply(edit, begin, end, &copy);
    drop_unreachable(copy.module());
    if (inferred_) copy.forget_types();
    progress_.edit = edit.name;
    return candidate(copy.module(), inferred_, &progress_.size);
  }

  // Makes `m` the best if it is well formed, smaller than `than`, and passes the test.
  bool candidate(const ir::Module& m, bool infer, const Size* than) {
    if (stopped() || !write_well_formed(m, infer, path_)) return false;
    ir::Module written = ir::read_module(path_);
    const Size size = size_of(written);
    if (than && !(size < *than)) return false;
    if (!tried_.insert(fingerprint()).second) return false;
    ++progress_.tests;
    const bool passes = test_(path_);
    if (passes) {
      best_ = std::move(written);
      detach();
      progress_.size = size;
      ++progress_.accepted;
      if (options_.save) options_.save(best_);
    }
    if (options_.progress) options_.progress(progress_);
    return passes;
  }

  // The constants of what was read view a file that the next candidate replaces by another inode:
  // write_module renames, so the mapping stays what it was.
  void detach() { std::remove(ir::side_file_of(path_).c_str()); }

  Hash128 fingerprint() const {
    std::string all = read_text_file(path_);
    const std::string side = ir::side_file_of(path_);
    if (fs::exists(side)) all += read_text_file(side);
    return hash128(all);
  }

  bool sweep(const Edit& edit) {
    bool changed = false;
    size_t sites = count(edit);
    for (size_t chunk = sites; chunk > 0; chunk /= 2) {
      for (size_t end = sites; end > 0 && !stopped();) {
        const size_t begin = end > chunk ? end - chunk : 0;
        if (attempt(edit, begin, end)) {
          changed = true;
          sites = count(edit);
          end = std::min(begin, sites);
        } else {
          end = begin;
        }
      }
      chunk = std::min(chunk, sites);
    }
    return changed;
  }

  const Test& test_;
  const Options& options_;
  Scratch scratch_;
  std::string path_;
  ir::Module best_;
  Progress progress_;
  bool inferred_ = false;
  std::set<Hash128> tried_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace

Size size_of(const ir::Module& m) {
  Copy copy(m);
  Size size{};
  int64_t &parts = size[0], &reads = size[1], &symbols = size[2], &attributes = size[3],
          &characters = size[4], &extents = size[5], &bytes = size[6];
  for (const ir::DataType& d : m.data_types)
    parts += 1 + static_cast<int64_t>(d.constructors.size());
  std::set<std::pair<std::string, std::string>> seen;
  std::set<const ir::Var*> bound;
  auto see = [&](const std::string& function, const ir::Type& t) {
    if (!t) return;
    for (const ir::Dim& d : t->dims) {
      if (d.is_any()) continue;
      extents += d.as_constant().value_or(0);
      for (const std::string& s : d.symbols()) seen.emplace(function, s);
    }
  };
  copy.visit_functions([&](const std::string& name, ir::Function& f) {
    parts += 1 + static_cast<int64_t>(f.parameters.size());
    attributes += static_cast<int64_t>(f.attrs.size());
    for (const ir::VarRef& p : f.parameters) see(name, p->type);
  });
  copy.visit_bindings(
      [&](Scope& scope, const ir::VarRef& v, ir::Expr& e, std::vector<ir::Binding>&) {
        parts += 1 + static_cast<int64_t>(e.cases.size());
        attributes += static_cast<int64_t>(e.attrs.size());
        bound.insert(v.get());
        see(*scope.function, v->type);
        return Fate::kKeep;
      });
  copy.visit_atoms([&](ir::Atom& a) {
    reads += a.is_var() && bound.count(a.var.get());
    if (!a.is_constant()) return;
    for (const int64_t extent : a.constant->shape) extents += extent;
    bytes += std::count_if(a.constant->bytes.begin(), a.constant->bytes.end(),
                           [](uint8_t b) { return b != 0; });
  });
  symbols = static_cast<int64_t>(seen.size());
  ir::PrintOptions options;
  options.types = false;
  characters = static_cast<int64_t>(ir::print(m, options).size());
  return size;
}

Outcome reduce(const ir::Module& m, const Test& test, const Options& options) {
  return Reducer(test, options).run(m);
}

}  // namespace nimble::reduce
