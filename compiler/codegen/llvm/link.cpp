// Objects to one shared object, by lld in this process. lld works on files and keeps global
// state: a private temporary directory, and one link at a time.
#include <lld/Common/Driver.h>
#include <llvm/Support/raw_ostream.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <mutex>

#include "compiler/codegen/codegen.h"
#include "compiler/codegen/llvm/architecture.h"
#include "vm/base/error.h"
#include "vm/base/file.h"

LLD_HAS_DRIVER(elf)

namespace nimble::codegen {
namespace {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::error_code ec;
    std::string pattern =
        (std::filesystem::temp_directory_path(ec) / "nimble-link-XXXXXX").string();
    if (ec || mkdtemp(pattern.data()) == nullptr)
      throw Error(Status::kIo, pattern, "cannot create a temporary directory",
                  "set TMPDIR to a writable place");
    path_ = pattern;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace

std::vector<uint8_t> link(std::span<const CompiledObject> objects) {
  NIMBLE_CHECK(!objects.empty());
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  const TemporaryDirectory directory;
  const std::string output = directory.file("image.so");
  const ArchitectureTraits& architecture = architecture_of(objects[0].level);
  std::vector<std::string> arguments = {
      "ld.lld", "-m", architecture.emulation, "-shared", "--no-undefined", "-Bsymbolic",
      "--build-id=none", "--hash-style=gnu", "--threads=1", "--strip-debug",
      // Every segment on pages of its own, so that each has its own rights.
      "-z", architecture.aligned_in_file ? "separate-loadable-segments" : "noseparate-code", "-z",
      architecture.pages, "-z", "norelro", "-z", "noexecstack", "-z", "text", "-o", output};
  for (size_t i = 0; i < objects.size(); ++i) {
    NIMBLE_CHECK(objects[i].level == objects[0].level);
    arguments.push_back(directory.file("object" + std::to_string(i) + ".o"));
    std::ofstream file(arguments.back(), std::ios::binary);
    file.write(reinterpret_cast<const char*>(objects[i].bytes.data()),
               static_cast<std::streamsize>(objects[i].bytes.size()));
    if (!file.flush())
      throw Error(Status::kIo, arguments.back(), "cannot write", "make room, or set TMPDIR");
  }
  std::vector<const char*> argv;
  for (const std::string& a : arguments) argv.push_back(a.c_str());
  std::string text;
  llvm::raw_string_ostream out(text);
  const lld::Result result = lld::lldMain(argv, out, out, {{lld::Gnu, &lld::elf::link}});
  if (result.retCode != 0) {
    // Our objects always link, so a failure is a matter of files; anything else is our bug.
    const bool files = text.find("failed to open") != std::string::npos ||
                       text.find("failed to write") != std::string::npos ||
                       text.find("No space left") != std::string::npos;
    NIMBLE_CHECK(files, "lld: {}", out.str());
    std::string line = out.str().substr(0, out.str().find('\n'));
    throw Error(Status::kIo, output, "cannot write: " + line, "make room, or set TMPDIR");
  }
  return read_file(output);
}

}  // namespace nimble::codegen
