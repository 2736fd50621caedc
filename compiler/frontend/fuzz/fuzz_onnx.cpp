// Fuzz target `onnx`: any file beside any other imports or is refused with an Error of a line for
// each fault, which begins with the file's name: nothing in a file breaks a message apart.
#include <algorithm>
#include <filesystem>

#include "compiler/frontend/frontend.h"
#include "compiler/frontend/onnx/operators.h"
#include "compiler/ir/infer.h"
#include "vm/base/file.h"
#include "vm/base/fuzz/fuzz.h"

namespace nimble::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr uintmax_t kLargestSeed = 12 << 10;

// The folder in which the model lies, with the data files that seeds refer to.
const ScratchFolder& folder() {
  static const ScratchFolder* kFolder = [] {
    static const ScratchFolder scratch;
    const std::string data(256, '\1');
    for (const char* name : {"w.bin", "mlp_external.onnx.data"}) scratch.write(name, data);
    return &scratch;
  }();
  return *kFolder;
}

}  // namespace

void run(std::span<const uint8_t> input) {
  folder().write("m.onnx", text_of(input));
  auto check = [](const Error& e) {
    const std::string text = e.what();
    NIMBLE_FUZZ_REQUIRE(e.status() != Status::kInternal, "{}", text);
    for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', end + 1))
      NIMBLE_FUZZ_REQUIRE(text.compare(end + 1, folder().file("").size(), folder().file("")) == 0,
                          "a line of no file: {}", text);
  };
  try {
    const ir::Module m = frontend::import_model(folder().file("m.onnx"));
    const std::vector<std::string> faults = ir::verify(m);
    NIMBLE_FUZZ_REQUIRE(faults.empty(), "imported, but not well formed: {}", faults[0]);
  } catch (const Error& e) {
    check(e);
  }
  try {
    frontend::coverage(folder().file("m.onnx"));
  } catch (const Error& e) {
    check(e);
  }
}

std::vector<Seed> seeds() {
  std::vector<Seed> out;
  const fs::path data = fs::path(NIMBLE_SOURCE_DIR) / "compiler/frontend/test/data";
  for (const fs::path& folder : {data, data / "operators", data / "quantised"})
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.path().extension() == ".onnx" && entry.file_size() <= kLargestSeed)
        out.push_back({entry.path().filename().string(), read_text_file(entry.path().string())});
  std::sort(out.begin(), out.end(), [](const Seed& a, const Seed& b) { return a.name < b.name; });
  return out;
}

std::vector<std::string> dictionary() {
  std::vector<std::string> out = {"axis",        "axes",
                                  "perm",        "pads",
                                  "strides",     "kernel_shape",
                                  "dilations",   "group",
                                  "auto_pad",    "keepdims",
                                  "allowzero",   "hidden_size",
                                  "direction",   "linear_before_reset",
                                  "epsilon",     "transB",
                                  "alpha",       "then_branch",
                                  "else_branch", "body",
                                  "to",          "value",
                                  "location",    "offset",
                                  "length",      "w.bin",
                                  "block_size",  "bits",
                                  "K",           "N",
                                  "precision",   "output_dtype"};
  for (const auto* op : frontend::onnx::all_operators()) out.push_back(op->name);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace nimble::fuzz
