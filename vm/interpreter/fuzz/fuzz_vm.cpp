// Fuzz target `vm`: whatever the reader and the verifier accept is safe to run, with bounded fuel,
// memory and depth, without native code.
//
// Checksums and offsets would stop nearly every mutation at the door, so an input has one of three
// forms, told apart by its first byte:
//   0x8f   a file; its checksums are made right before it is read
//   0x01   sections: for each a number (1 byte), a size (2 bytes) and its contents, of which a
//          whole file is made, so that contents may grow and shrink
//   else   assembler text, which reaches any instruction sequence in few bytes
#include <cstring>

#include "vm/base/fuzz/fuzz.h"
#include "vm/base/hash.h"
#include "vm/executable/assembler.h"
#include "vm/executable/disassembler.h"
#include "vm/executable/format.h"
#include "vm/executable/opcodes.h"
#include "vm/executable/reader.h"
#include "vm/executable/test/sample.h"
#include "vm/executable/verifier.h"
#include "vm/executable/writer.h"
#include "vm/interpreter/fuzz/portable_programs.h"
#include "vm/interpreter/fuzz/programs.h"
#include "vm/interpreter/session.h"

namespace nimble::fuzz {
namespace {

using exec::kHeaderSize;
using exec::kTableEntrySize;

constexpr uint64_t kFuel = 3000;
constexpr uint64_t kMemory = 8 << 20;
constexpr uint32_t kDepth = 200;
constexpr int64_t kLargestInput = 1 << 12;  // elements

template <class T>
void store(std::vector<uint8_t>* file, size_t at, T value) {
  if (at + sizeof value <= file->size()) std::memcpy(file->data() + at, &value, sizeof value);
}
template <class T>
T load(const std::vector<uint8_t>& file, size_t at) {
  T value = 0;
  if (at + sizeof value <= file.size()) std::memcpy(&value, file.data() + at, sizeof value);
  return value;
}

void reseal(std::vector<uint8_t>* file) {
  const size_t sections = std::min<uint32_t>(load<uint32_t>(*file, 16), exec::kMaxSections);
  store(file, 24, static_cast<uint64_t>(file->size()));
  for (size_t i = 0; i < sections; ++i) {
    const size_t entry = kHeaderSize + i * kTableEntrySize;
    const auto offset = load<uint64_t>(*file, entry + 8), size = load<uint64_t>(*file, entry + 16);
    if (offset > file->size() || size > file->size() - offset) continue;
    store(file, entry + 24, hash64(std::span(*file).subspan(offset, size)));
  }
  const size_t end = kHeaderSize + sections * kTableEntrySize;
  if (end <= file->size()) store(file, end, hash64(std::span(*file).first(end)));
}

size_t aligned(size_t at, size_t multiple) {
  return (at + multiple - 1) / multiple * multiple;
}

std::vector<uint8_t> file_of_sections(std::span<const uint8_t> in) {
  struct Part {
    uint32_t id;
    std::span<const uint8_t> bytes;
  };
  std::vector<Part> parts;
  while (in.size() >= 3 && parts.size() < 16) {
    const size_t size = std::min<size_t>(in[1] | in[2] << 8, in.size() - 3);
    parts.push_back({in[0], in.subspan(3, size)});
    in = in.subspan(3 + size);
  }
  std::vector<uint8_t> file(kHeaderSize + parts.size() * kTableEntrySize + 8);
  std::memcpy(file.data(), exec::kMagic, sizeof exec::kMagic);
  store(&file, 8, exec::kFormatVersion);
  store(&file, 16, static_cast<uint32_t>(parts.size()));
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool data = parts[i].id == static_cast<uint32_t>(exec::Section::kConstantData) ||
                      parts[i].id == static_cast<uint32_t>(exec::Section::kImageData);
    const size_t at = aligned(file.size(), data ? exec::kDataAlignment : exec::kSectionAlignment);
    file.resize(at);
    file.insert(file.end(), parts[i].bytes.begin(), parts[i].bytes.end());
    const size_t entry = kHeaderSize + i * kTableEntrySize;
    store(&file, entry, parts[i].id);
    store(&file, entry + 4, exec::kRequired);
    store(&file, entry + 8, static_cast<uint64_t>(at));
    store(&file, entry + 16, static_cast<uint64_t>(parts[i].bytes.size()));
  }
  return file;
}

exec::Executable executable_of(std::span<const uint8_t> input) {
  if (!input.empty() && (input[0] == exec::kMagic[0] || input[0] == 1)) {
    std::vector<uint8_t> file = input[0] == 1 ? file_of_sections(input.subspan(1))
                                              : std::vector<uint8_t>(input.begin(), input.end());
    reseal(&file);
    return exec::deserialize(file);
  }
  return exec::assemble(text_of(input));
}

// Inputs that fit an entry's ports: equal names are equal extents, all small.
struct Inputs {
  std::vector<std::vector<uint8_t>> bytes;
  std::vector<std::vector<int64_t>> shapes;
  std::vector<rt::InputTensor> tensors;
};
bool make_inputs(const exec::EntryPoint& entry, size_t round, Inputs* out) {
  std::map<std::string, int64_t> symbols;
  static constexpr int64_t kExtents[] = {3, 0, 1, 7};
  for (const exec::Port& p : entry.inputs) {
    std::vector<int64_t> shape;
    int64_t elements = 1;
    for (size_t i = 0; i < p.extents.size(); ++i) {
      const int64_t fresh = kExtents[(round + symbols.size()) % 4];
      const int64_t extent =
          p.extents[i] >= 0 ? p.extents[i] : symbols.emplace(p.dims[i], fresh).first->second;
      if (extent > kLargestInput || elements * extent > kLargestInput) return false;
      elements *= extent;
      shape.push_back(extent);
    }
    std::vector<uint8_t> bytes(static_cast<size_t>(elements) * size_of(p.dtype));
    for (size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<uint8_t>(p.dtype == DType::kBool ? i % 2
                                      : i % size_of(p.dtype)  ? 0
                                                              : i);
    out->bytes.push_back(std::move(bytes));
    out->shapes.push_back(std::move(shape));
  }
  for (size_t i = 0; i < entry.inputs.size(); ++i) {
    const bool left_out = !entry.inputs[i].default_fill.empty() && round % 2 == 1;
    out->tensors.push_back(
        {out->bytes[i].data(), entry.inputs[i].dtype, out->shapes[i], {}, !left_out});
  }
  return true;
}

void run_entries(const std::shared_ptr<const rt::Model>& model) {
  rt::SessionOptions options;
  options.threads = 1;
  options.fuel = kFuel;
  options.memory_limit = kMemory;
  options.depth = kDepth;
  rt::Session session(model, options);
  const size_t entries = std::min<size_t>(model->executable().entries.size(), 4);
  for (size_t i = 0; i < entries; ++i)
    for (size_t round = 0; round < 2; ++round) {
      const exec::EntryPoint& entry = model->executable().entries[i];
      Inputs inputs;
      if (!make_inputs(entry, round, &inputs)) continue;
      std::vector<rt::OutputTensor> outputs(std::min<size_t>(entry.outputs.size(), 64));
      try {
        session.run(i, inputs.tensors, outputs);
      } catch (const Error& e) {
        NIMBLE_FUZZ_REQUIRE(e.status() != Status::kInternal, "{}", e.what());
        continue;
      }
      // Every byte of a result is the user's to read.
      uint8_t sum = 0;
      for (const rt::OutputTensor& o : outputs) {
        uint64_t bytes = size_of(o.dtype);
        for (const int64_t extent : o.shape()) bytes *= static_cast<uint64_t>(extent);
        for (uint64_t k = 0; k < bytes; ++k) sum ^= static_cast<const uint8_t*>(o.data)[k];
      }
      [[maybe_unused]] static volatile uint8_t sink;
      sink = sum;
    }
}

// The `sections` form of an executable.
std::string sections_of(const exec::Executable& e) {
  const std::vector<uint8_t> file = exec::serialize(e);
  std::string out(1, '\1');
  for (uint32_t i = 0; i < load<uint32_t>(file, 16); ++i) {
    const size_t entry = kHeaderSize + i * kTableEntrySize;
    const auto offset = load<uint64_t>(file, entry + 8), size = load<uint64_t>(file, entry + 16);
    out += static_cast<char>(load<uint32_t>(file, entry));
    out += static_cast<char>(size & 0xff);
    out += static_cast<char>(size >> 8);
    out.append(reinterpret_cast<const char*>(file.data()) + offset, size);
  }
  return out;
}

}  // namespace

void run(std::span<const uint8_t> input) {
  try {
    exec::Executable e = executable_of(input);
    (void)exec::disassemble(e);
    if (!exec::find_violations(e).empty()) return;
    NIMBLE_FUZZ_REQUIRE(
        exec::serialize(exec::deserialize(exec::serialize(e))) == exec::serialize(e),
        "writing and reading changes an executable that the verifier accepts");
    run_entries(rt::Model::load(std::move(e), {}, "fuzz"));
  } catch (const Error& e) {
    NIMBLE_FUZZ_REQUIRE(e.status() != Status::kInternal, "{}", e.what());
  }
}

std::vector<Seed> seeds() {
  std::vector<Seed> out;
  auto add_sections = [&](const std::string& name, const exec::Executable& e) {
    const std::vector<exec::Violation> faults = exec::find_violations(e);
    NIMBLE_FUZZ_REQUIRE(faults.empty(), "the seed {} is refused: {}", name, faults[0].message);
    out.push_back({name + ".sections", sections_of(e)});
  };
  auto add = [&](const std::string& name, const std::string& text) {
    out.push_back({name + ".asm", text});
    add_sections(name, exec::assemble(text));
  };
  add("sample", exec::kSampleText);
  for (const Program& p : programs()) add(p.name, p.text);
  for (const auto& [name, e] : portable_programs()) add_sections(name, e);
  const std::vector<uint8_t> file = exec::serialize(exec::assemble(programs()[0].text));
  out.push_back({"file.nimble", {file.begin(), file.end()}});
  return out;
}

std::vector<std::string> dictionary() {
  std::vector<std::string> out = {"function \"f\" 1 4 {\n",
                                  "entry \"main\" f0 {\n",
                                  "kernel \"k\" {\n",
                                  "scalar \"s\" [a0 1 +]\n",
                                  "constant \"c\" i64 [2] { 1, 2 }\n",
                                  "text \"t\"\n",
                                  "dispatch { 0: 0 }",
                                  "host \"host.copy\"",
                                  "host \"host.zero\"",
                                  "input \"x\" f32 [\"n\"] [-1]",
                                  "output \"y\" f32 [\"n\"] [-1]",
                                  "scratch [a0 4 *]",
                                  " out i64 (",
                                  " inout f32 (",
                                  "r0",
                                  "r1",
                                  "r2",
                                  "r3",
                                  "(r0, r1)",
                                  "@0",
                                  "@1",
                                  "@2",
                                  "d0",
                                  "d1",
                                  "i64",
                                  "f32",
                                  "bool",
                                  "u8",
                                  "9223372036854775807",
                                  "-1",
                                  "64"};
#define NIMBLE_OPCODE(name, operands, effect, sentence) out.push_back(#name " ");
#include "vm/executable/Opcodes.def"
#undef NIMBLE_OPCODE
  return out;
}

}  // namespace nimble::fuzz
