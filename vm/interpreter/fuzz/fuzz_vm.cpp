// Fuzz target `vm`: whatever the reader and the verifier accept is safe to run, with bounded fuel,
// memory and depth, without native code.
//
// Checksums and offsets would stop nearly every mutation at the door, so an input has one of four
// forms, told apart by its first byte:
//   0x8f   a file; its checksums are made right before it is read
//   0x01   sections: for each a number (1 byte), a size (2 bytes) and its contents, of which a
//          whole file is made, so that contents may grow and shrink
//   0x02   choices of a generator of valid executables that call host operators
//   else   assembler text, which reaches any instruction sequence in few bytes
#include <time.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <optional>

#include "vm/base/bytes.h"
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
#include "vm/interpreter/fuzz/generated_program.h"
#include "vm/interpreter/fuzz/operator_programs.h"
#include "vm/interpreter/fuzz/portable_programs.h"
#include "vm/interpreter/fuzz/programs.h"
#include "vm/interpreter/session.h"

namespace nimble::fuzz {
namespace {

using exec::kHeaderSize;
using exec::kTableEntrySize;

constexpr uint64_t kFuel = 20'000;
constexpr uint64_t kMemory = 128 << 20;  // far more than kFuel may fill
constexpr uint32_t kDepth = 200;
constexpr int64_t kLargestInput = 1 << 12;  // elements
constexpr int32_t kThreads = 3;

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

// A section of a file.
struct Part {
  uint32_t id;
  std::vector<uint8_t> bytes;
};

std::vector<Part> parts_of_file(std::span<const uint8_t> bytes) {
  const std::vector<uint8_t> file(bytes.begin(), bytes.end());
  std::vector<Part> out;
  for (uint32_t i = 0; i < load<uint32_t>(file, 16); ++i) {
    const size_t entry = kHeaderSize + i * kTableEntrySize;
    const auto offset = load<uint64_t>(file, entry + 8), size = load<uint64_t>(file, entry + 16);
    const std::span<const uint8_t> part = std::span(file).subspan(offset, size);
    out.push_back({load<uint32_t>(file, entry), {part.begin(), part.end()}});
  }
  return out;
}

std::vector<uint8_t> file_of_parts(const std::vector<Part>& parts) {
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

std::vector<uint8_t> file_of_sections(std::span<const uint8_t> in) {
  std::vector<Part> parts;
  while (in.size() >= 3 && parts.size() < 16) {
    const size_t size = std::min<size_t>(in[1] | in[2] << 8, in.size() - 3);
    const std::span<const uint8_t> bytes = in.subspan(3, size);
    parts.push_back({in[0], {bytes.begin(), bytes.end()}});
    in = in.subspan(3 + size);
  }
  return file_of_parts(parts);
}

// The `sections` form of an executable.
std::string sections_of(const exec::Executable& e) {
  std::string out(1, '\1');
  for (const Part& p : parts_of_file(exec::serialize(e))) {
    out += static_cast<char>(p.id);
    out += static_cast<char>(p.bytes.size() & 0xff);
    out += static_cast<char>(p.bytes.size() >> 8);
    out.append(p.bytes.begin(), p.bytes.end());
  }
  return out;
}

// A file whose last constant lies where its first one does, if it has several.
std::vector<uint8_t> file_of_overlaid(const exec::Executable& e) {
  size_t at = 0, last = 0;  // in the constants' data
  for (const exec::Constant& c : e.constants) {
    last = aligned(at, exec::kConstantAlignment);
    at = last + c.bytes.size();
  }
  std::vector<Part> parts = parts_of_file(exec::serialize(e));
  for (Part& p : parts) {
    if (p.id != static_cast<uint32_t>(exec::Section::kConstants) || last == 0) continue;
    // The last record ends with the place and the size of its data.
    ByteWriter before, after;
    before.varint(last);
    before.varint(e.constants.back().bytes.size());
    after.varint(0);
    after.varint(e.constants.back().bytes.size());
    p.bytes.resize(p.bytes.size() - before.size());
    p.bytes.insert(p.bytes.end(), after.view().begin(), after.view().end());
  }
  return file_of_parts(parts);
}

// The generator's promise: it assembles, and where it says so, the verifier finds nothing.
exec::Executable generated(std::span<const uint8_t> choices) {
  ProgramGenerator generator(choices);
  exec::Executable e;
  try {
    e = generator.program();
  } catch (const Error& failed) {
    NIMBLE_FUZZ_REQUIRE(false, "a generated program: {}", failed.what());
  }
  if (generator.valid()) {
    const std::vector<exec::Violation> faults = exec::find_violations(e);
    NIMBLE_FUZZ_REQUIRE(faults.empty(), "a generated program is refused: {}\n{}", faults[0].message,
                        exec::disassemble(e));
  }
  if (!generator.overlaid()) return e;
  std::vector<uint8_t> file = file_of_overlaid(e);
  reseal(&file);
  return exec::deserialize(file);
}

exec::Executable executable_of(std::span<const uint8_t> input) {
  if (!input.empty() && (input[0] == exec::kMagic[0] || input[0] == 1)) {
    std::vector<uint8_t> file = input[0] == 1 ? file_of_sections(input.subspan(1))
                                              : std::vector<uint8_t>(input.begin(), input.end());
    reseal(&file);
    return exec::deserialize(file);
  }
  if (!input.empty() && input[0] == 2) return generated(input.subspan(1));
  return exec::assemble(text_of(input));
}

// Inputs that fit an entry's ports: equal names are equal extents, all small.
class Inputs {
 public:
  std::vector<rt::InputTensor> tensors;

  // False if there are none that are small.
  bool make(const exec::Executable& e, const exec::EntryPoint& entry, size_t round) {
    round_ = round;
    for (const exec::Port& p : entry.inputs) {
      Elements& made = elements_.emplace_back();
      rt::HostValueRef& value = values_.emplace_back();
      if (p.type >= 0) {
        int budget = 200;
        value = value_of(e, static_cast<uint32_t>(p.type), 6, &budget);
        if (!value) return false;
      } else if (!elements_of(p.dtype, p.dims, p.extents, &made)) {
        return false;
      }
    }
    for (size_t i = 0; i < entry.inputs.size(); ++i) {
      const bool left_out = !entry.inputs[i].default_fill.empty() && round % 2 == 1;
      rt::InputTensor t{
          elements_[i].bytes.data(), entry.inputs[i].dtype, elements_[i].shape, {}, !left_out};
      t.value = values_[i].get();
      tensors.push_back(t);
    }
    return true;
  }

 private:
  struct Elements {
    std::vector<int64_t> shape;
    std::vector<uint8_t> bytes;
  };

  bool elements_of(DType dtype, const std::vector<std::string>& dims,
                   const std::vector<int64_t>& extents, Elements* out) {
    static constexpr int64_t kExtents[] = {3, 0, 1, 7};
    int64_t elements = 1;
    for (size_t i = 0; i < extents.size(); ++i) {
      const int64_t fresh = kExtents[(round_ + symbols_.size()) % 4];
      const int64_t extent =
          extents[i] >= 0 ? extents[i] : symbols_.emplace(dims[i], fresh).first->second;
      if (extent > kLargestInput || elements * extent > kLargestInput) return false;
      elements *= extent;
      out->shape.push_back(extent);
    }
    out->bytes.resize(static_cast<size_t>(elements) * size_of(dtype));
    for (size_t i = 0; i < out->bytes.size(); ++i)
      out->bytes[i] = static_cast<uint8_t>(dtype == DType::kBool ? i % 2
                                           : i % size_of(dtype)  ? 0
                                                                 : i);
    return true;
  }

  // A value of a type at most `depth` constructors deep; empty if the budget of parts allows none.
  rt::HostValueRef value_of(const exec::Executable& e, uint32_t number, int depth, int* budget) {
    const exec::ValueType& type = e.types[number];
    using Kind = exec::ValueType::Kind;
    if (depth == 0 || --*budget < 0) return {};
    if (type.kind == Kind::kTensor || type.kind == Kind::kScalar) {
      Elements made;
      if (!elements_of(type.dtype, type.dims, type.extents, &made)) return {};
      return rt::HostValue::tensor(type.dtype, made.shape, made.bytes.data());
    }
    for (size_t i = 0; i < type.constructors.size(); ++i) {
      const size_t tag = (i + round_ + static_cast<size_t>(depth)) % type.constructors.size();
      std::vector<rt::HostValueRef> fields;
      for (const uint32_t field : type.constructors[tag].fields) {
        // A field of the type of the one before is the same value now and then.
        const auto& all = type.constructors[tag].fields;
        if (round_ % 2 == 1 && !fields.empty() && field == all[fields.size() - 1])
          fields.push_back(fields.back());
        else
          fields.push_back(value_of(e, field, depth - 1, budget));
        if (!fields.back()) break;
      }
      if (fields.empty() || fields.back())
        return rt::HostValue::data(static_cast<int64_t>(tag), std::move(fields));
    }
    return {};
  }

  size_t round_ = 0;
  std::map<std::string, int64_t> symbols_;
  std::deque<Elements> elements_;
  std::deque<rt::HostValueRef> values_;
};

// Every byte of a result is the user's to read.
uint64_t hash_of(DType dtype, std::span<const int64_t> shape, const void* data) {
  uint64_t bytes = size_of(dtype);
  for (const int64_t extent : shape) bytes *= static_cast<uint64_t>(extent);
  return hash64({static_cast<const uint8_t*>(data), bytes});
}
uint64_t hash_of(const rt::HostValueRef& value) {
  uint64_t sum = 0;
  std::vector<const rt::HostValue*> open = {value.get()};
  for (int parts = 0; !open.empty() && parts < 10'000; ++parts) {  // shared ones come by often
    const rt::HostValue* v = open.back();
    open.pop_back();
    if (v->is_tensor()) sum = 31 * sum + hash_of(v->dtype(), v->shape(), v->bytes());
    for (const rt::HostValueRef& f : v->fields()) open.push_back(f.get());
  }
  return sum;
}

// No byte of a file is in two constants: each may be copied, and a file would grow beyond bounds.
void expect_constants_apart(const exec::Executable& e) {
  std::vector<std::span<const uint8_t>> all;
  for (const exec::Constant& c : e.constants)
    if (!c.bytes.empty()) all.push_back(c.bytes);
  std::ranges::sort(all, {}, [](auto bytes) { return bytes.data(); });
  for (size_t i = 1; i < all.size(); ++i)
    NIMBLE_FUZZ_REQUIRE(all[i].data() >= all[i - 1].data() + all[i - 1].size(),
                        "two constants share data");
}

// Processor seconds of this thread.
double seconds_used() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}
// Fuel bounds time: even sanitizers make some hundredths of a second of kFuel. What clears kMemory
// for a few steps takes longer, and does so again: a stall of the machine does not.
constexpr double kMostSeconds = 0.25;
constexpr int kTries = 3;

// How many of its runs succeeded.
size_t run_entries(const std::shared_ptr<const rt::Model>& model, int32_t threads) {
  // Kept, so that threads are not made anew for each input.
  static const std::shared_ptr<rt::ThreadPool> pool = rt::ThreadPool::shared(kThreads, false);
  rt::SessionOptions options;
  options.threads = threads;
  options.fuel = kFuel;
  options.memory_limit = kMemory;
  options.depth = kDepth;
  rt::Session session(model, options);
  size_t succeeded = 0;
  const size_t entries = std::min<size_t>(model->executable().entries.size(), 4);
  for (size_t i = 0; i < entries; ++i) {
    // What a run gives depends on its inputs, not on what ran before it or was left in memory.
    std::optional<uint64_t> first;
    for (const size_t round : {0, 1, 0}) {
      const exec::EntryPoint& entry = model->executable().entries[i];
      Inputs inputs;
      if (!inputs.make(model->executable(), entry, round)) continue;
      std::vector<rt::OutputTensor> outputs(std::min<size_t>(entry.outputs.size(), 64));
      uint64_t result = 0;
      bool ran = false, exhausted = false;
      const auto run_once = [&] {
        const double start = seconds_used();
        result = 0;
        ran = exhausted = false;
        try {
          session.run(i, inputs.tensors, outputs);
          for (const rt::OutputTensor& o : outputs)
            result =
                31 * result + (o.value ? hash_of(o.value) : hash_of(o.dtype, o.shape(), o.data));
          ran = true;
        } catch (const Error& e) {
          NIMBLE_FUZZ_REQUIRE(e.status() != Status::kInternal, "{}", e.what());
          result = static_cast<uint64_t>(e.status());
          exhausted = e.status() == Status::kExhausted;
        }
        return seconds_used() - start;
      };
      double used = run_once();
      for (int tries = 1; used >= kMostSeconds && tries < kTries; ++tries) used = run_once();
      NIMBLE_FUZZ_REQUIRE(used < kMostSeconds, "{} steps took {:.1f} s", kFuel, used);
      succeeded += ran;
      // Where fuel or memory ends, though, depends on what earlier runs left in the pools.
      if (round != 0 || exhausted) continue;
      if (first)
        NIMBLE_FUZZ_REQUIRE(result == *first, "a run with the same inputs gives something else");
      first = result;
    }
  }
  return succeeded;
}

}  // namespace

void run(std::span<const uint8_t> input) {
  try {
    exec::Executable e = executable_of(input);
    expect_constants_apart(e);
    (void)exec::disassemble(e);
    if (!exec::find_violations(e).empty()) return;
    NIMBLE_FUZZ_REQUIRE(
        exec::serialize(exec::deserialize(exec::serialize(e))) == exec::serialize(e),
        "writing and reading changes an executable that the verifier accepts");
    run_entries(rt::Model::load(std::move(e), {}, "fuzz"), input.size() % 2 ? kThreads : 1);
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
  for (const Program& p : operator_programs()) {
    add(p.name, p.text);
    // They do what they are for: a seed that fails leads nowhere.
    NIMBLE_FUZZ_REQUIRE(run_entries(rt::Model::load(exec::assemble(p.text), {}, p.name), 1) == 3,
                        "the seed {} fails", p.name);
  }
  for (const rt::LibraryKernel* k : rt::library_kernels()) {
    const auto calls_it = [&](const Program& p) {
      return p.text.find('"' + k->name + '"') != std::string::npos;
    };
    NIMBLE_FUZZ_REQUIRE(k->kind == exec::ImplementationKind::kVendor ||
                            std::ranges::any_of(programs(), calls_it) ||
                            std::ranges::any_of(operator_programs(), calls_it),
                        "no seed calls {}", k->name);
  }
  const std::vector<std::string> generated = generator_seeds();
  for (size_t i = 0; i < generated.size(); ++i)
    out.push_back({"generated-" + std::to_string(i), generated[i]});
  for (const auto& [name, e] : portable_programs()) add_sections(name, e);
  exec::Executable rows = exec::assemble(kRowsText);
  rows.kernels[0].portable = portable_kernel({});
  add_sections("portable-rows", rows);
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
                                  " in rows f32 (",
                                  " out rows f32 (",
                                  "data\n",
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
#define NIMBLE_OPCODE(name, ...) out.push_back(#name " ");
#include "vm/executable/Opcodes.def"
#undef NIMBLE_OPCODE
  return out;
}

}  // namespace nimble::fuzz
