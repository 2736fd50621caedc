// Order of checks: magic, version, header checksum, file size, table, gaps, section checksums,
// then the contents. So a file of another kind, a newer one, a truncated one and a damaged one
// each get their own message, and contents are parsed only once they are known to be whole.
#include "vm/executable/reader.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <new>

#include "vm/base/bytes.h"
#include "vm/base/checked.h"
#include "vm/base/device_number.h"
#include "vm/base/file.h"
#include "vm/base/hash.h"
#include "vm/executable/dim_program_bytes.h"
#include "vm/executable/format.h"
#include "vm/executable/opcodes.h"

namespace nimble::exec {
namespace {

using Bytes = std::span<const uint8_t>;
constexpr const char* kRemedy = "compile or copy the file anew";
constexpr const char* kMemoryRemedy =
    "raise memory_limit in the load options (nimble: --load-memory) if it is an honest file";

[[noreturn]] void corrupt(const std::string& place, std::string problem) {
  throw Error(Status::kCorrupt, place, std::move(problem), kRemedy);
}

// The sections that this version knows, by number; no data pointer: not in the file.
using Sections = std::array<Bytes, kSectionCount + 1>;

void expect_zeros(Bytes file, uint64_t begin, uint64_t end, const std::string& place) {
  for (uint64_t i = begin; i < end; ++i)
    if (file[i] != 0)
      corrupt(place, fmt::format("damaged: byte {} between sections is not zero", i));
}

Sections open_file(Bytes file, const std::string& place) {
  const size_t magic = std::min(file.size(), sizeof kMagic);
  if (magic == 0 || std::memcmp(file.data(), kMagic, magic) != 0)
    corrupt(place, "is not a nimble executable");
  if (file.size() < kHeaderSize)
    corrupt(place, fmt::format("is truncated: at least {} bytes expected, {} there", kHeaderSize,
                               file.size()));
  ByteReader in(file, place);
  in.skip(sizeof kMagic);
  const uint32_t version = in.u32();
  if (version > kFormatVersion)
    throw Error(
        Status::kIncompatible, place,
        fmt::format("has format version {}, this nimble reads up to {}", version, kFormatVersion),
        "update nimble or compile the model anew");
  if (version > 0 && version < kOldestFormatVersion)
    throw Error(Status::kIncompatible, place,
                fmt::format("has format version {}, this nimble reads from {} on", version,
                            kOldestFormatVersion),
                "compile the model anew");
  const uint32_t flags = in.u32(), count = in.u32(), reserved = in.u32();
  const uint64_t size = in.u64();
  const uint64_t header_end =
      kHeaderSize + uint64_t{std::min(count, kMaxSections)} * kTableEntrySize + sizeof(uint64_t);
  const std::string truncated =
      fmt::format("is truncated: {} bytes expected, {} there", size, file.size());
  if (count > kMaxSections) corrupt(place, "damaged: the header counts too many sections");
  if (file.size() < header_end) corrupt(place, truncated);
  // The header is always verified: the sizes of what follows come from it.
  Bytes header = file.first(static_cast<size_t>(header_end) - sizeof(uint64_t));
  uint64_t stored;
  std::memcpy(&stored, header.data() + header.size(), sizeof stored);
  if (hash64(header) != stored)
    corrupt(place, "damaged: the checksum of the header does not match");
  if (version == 0 || reserved != 0) corrupt(place, "malformed header");
  if (flags != 0)
    throw Error(Status::kIncompatible, place, fmt::format("has unknown flags {:#x}", flags),
                "update nimble or compile the model anew");
  if (file.size() < size) corrupt(place, truncated);
  if (file.size() > size)
    corrupt(place, fmt::format("damaged: {} bytes expected, {} there", size, file.size()));

  Sections sections{};
  uint64_t at = header_end;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t id = in.u32(), section_flags = in.u32();
    const uint64_t offset = in.u64(), bytes = in.u64(), hash = in.u64();
    if (offset < at || offset > size || bytes > size - offset)
      corrupt(place, fmt::format("malformed: section {} lies outside its place", id));
    expect_zeros(file, at, offset, place);
    at = offset + bytes;
    const Bytes contents = file.subspan(static_cast<size_t>(offset), static_cast<size_t>(bytes));
    const Section section = static_cast<Section>(id);
    if (hash64(contents) != hash)
      corrupt(place, fmt::format("damaged: the checksum of section \"{}\" does not match",
                                 name_of(section)));
    if (id == 0 || id > kSectionCount) {
      if (section_flags & kRequired)
        throw Error(Status::kIncompatible, place, fmt::format("needs unknown section {}", id),
                    "update nimble or compile the model anew");
      continue;
    }
    if (sections[id].data()) corrupt(place, fmt::format("malformed: section {} occurs twice", id));
    sections[id] = contents;
  }
  expect_zeros(file, at, size, place);
  for (uint32_t id = 1; id <= kSectionCount; ++id)
    if (const auto s = static_cast<Section>(id);
        !sections[id].data() && s != Section::kProvenance && s != Section::kPortable &&
        s != Section::kOptions && s != Section::kGpu && s != Section::kDivisible &&
        s != Section::kGpuSteps && s != Section::kTensorMaps)
      corrupt(place, fmt::format("malformed: section \"{}\" is missing",
                                 name_of(static_cast<Section>(id))));
  return sections;
}

// The enumerator that a byte stands for; `last` is the highest.
template <typename E>
E get_enum(ByteReader* in, E last, std::string_view what) {
  const uint8_t v = in->u8();
  if (v > static_cast<uint8_t>(last)) in->fail(fmt::format("unknown {} {}", what, v));
  return static_cast<E>(v);
}

int32_t get_device(ByteReader* in) {
  return static_cast<int32_t>(in->varint_max(255, "device"));
}

DType get_dtype(ByteReader* in) {
  return get_enum(in, DType::kF64, "dtype");
}

std::vector<std::string> get_texts(ByteReader* in) {
  std::vector<std::string> out(in->count("number of texts", 1, sizeof(std::string)));
  for (std::string& t : out) t = in->text();
  return out;
}

std::vector<int64_t> get_integers(ByteReader* in) {
  std::vector<int64_t> out(in->count("number of integers", 1, sizeof(int64_t)));
  for (int64_t& v : out) v = in->svarint();
  return out;
}

void get_functions(ByteReader* in, Executable* e) {
  e->functions.resize(in->count("number of functions", 6, sizeof(BytecodeFunction)));
  for (BytecodeFunction& f : e->functions) {
    f.name = in->text();
    f.origin = in->text();
    f.parameters = in->varint32("number of parameters");
    f.registers = in->varint32("number of registers");
    const size_t instructions = in->count("number of instructions", 2, sizeof(Instruction));
    f.code.reserve(instructions);
    for (size_t i = 0; i < instructions; ++i) f.code.push_back(decode(in));
    f.notes.resize(in->count("number of notes", 2, sizeof(SourceNote)));
    for (SourceNote& n : f.notes) {
      n.instruction = in->varint32("instruction of a note");
      n.text = in->text();
    }
  }
}

void get_scalar_functions(ByteReader* in, Executable* e) {
  e->scalar_functions.resize(in->count("number of scalar functions", 4, sizeof(ScalarFunction)));
  for (ScalarFunction& f : e->scalar_functions) {
    f.name = in->text();
    f.program = decode_dim_program(in);
  }
}

KernelContract get_contract(ByteReader* in) {
  KernelContract c;
  c.symbols = get_texts(in);
  c.arguments.resize(in->count("number of kernel arguments", 2, sizeof(KernelArgument)));
  for (KernelArgument& a : c.arguments) {
    a.kind = get_enum(in, KernelArgument::Kind::kData, "kind of argument");
    if (a.kind == KernelArgument::Kind::kScalar) {
      a.symbol = in->varint32("symbol");
      continue;
    }
    if (a.kind == KernelArgument::Kind::kData) continue;
    a.dtype = get_dtype(in);
    a.access = get_enum(in, Access::kInOut, "access");
    a.collapse_leading = in->boolean();
    a.dims.resize(in->count("rank", 3, sizeof(DimProgram)));
    for (DimProgram& d : a.dims) d = decode_dim_program(in);
  }
  c.scratch_bytes = decode_dim_program(in);
  c.requirements.resize(in->count("number of requirements", 3, sizeof(DimProgram)));
  for (DimProgram& p : c.requirements) p = decode_dim_program(in);
  return c;
}

DispatchTree get_dispatch(ByteReader* in) {
  DispatchTree tree;
  tree.nodes.resize(in->count("number of dispatch nodes", 2, sizeof(DispatchNode)));
  for (DispatchNode& n : tree.nodes) {
    n.test = get_enum(in, DispatchNode::Test::kEqual, "dispatch test");
    n.yes = in->varint32("dispatch node");
    if (n.test == DispatchNode::Test::kLeaf) continue;
    n.no = in->varint32("dispatch node");
    n.threshold = in->svarint();
    n.feature.kind = get_enum(in, DispatchFeature::Kind::kThreads, "dispatch feature");
    n.feature.a = in->varint32("symbol");
    n.feature.b = in->varint32("symbol");
    n.feature.t = in->svarint();
  }
  return tree;
}

void get_kernels(ByteReader* in, Executable* e) {
  e->kernels.resize(in->count("number of kernels", 11, sizeof(Kernel)));
  for (Kernel& k : e->kernels) {
    k.name = in->text();
    k.source = in->text();
    k.workload = in->text();
    k.device = get_device(in);
    k.contract = get_contract(in);
    k.dispatch = get_dispatch(in);
    k.implementations.resize(in->count("number of implementations", 13, sizeof(Implementation)));
    for (Implementation& i : k.implementations) {
      i.kind = get_enum(in, ImplementationKind::kPortable, "kind of implementation");
      i.symbol = in->text();
      i.config = in->text();
      i.template_name = in->text();
      const int64_t threads = in->svarint();
      if (threads < INT32_MIN || threads > INT32_MAX) in->fail("number of threads out of range");
      i.max_threads = static_cast<int32_t>(threads);
      i.code_hash = in->u64();
    }
  }
}

void get_portable(ByteReader* in, Executable* e) {
  const size_t count = in->count("number of portable kernels", 7);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t kernel = in->varint();
    if (kernel >= e->kernels.size() || e->kernels[kernel].portable)
      in->fail(fmt::format("portable code for kernel {}, which has one or is not there", kernel));
    e->kernels[kernel].portable = decode_portable(in);
  }
}

std::vector<Port> get_ports(ByteReader* in) {
  std::vector<Port> out(in->count("number of ports", 6, sizeof(Port)));
  for (Port& p : out) {
    p.name = in->text();
    p.type = int64_t{in->varint32("type of a port")} - 1;
    p.dtype = get_dtype(in);
    p.dims = get_texts(in);
    p.extents = get_integers(in);
    p.default_fill = in->text();
  }
  return out;
}

void get_entries(ByteReader* in, Executable* e) {
  e->entries.resize(in->count("number of entry points", 4, sizeof(EntryPoint)));
  for (EntryPoint& p : e->entries) {
    p.name = in->text();
    p.function = in->varint32("function");
    p.inputs = get_ports(in);
    p.outputs = get_ports(in);
  }
}

void get_types(ByteReader* in, Executable* e) {
  e->types.resize(in->count("number of types", 6, sizeof(ValueType)));
  for (ValueType& t : e->types) {
    t.kind = get_enum(in, ValueType::Kind::kData, "kind of type");
    t.name = in->text();
    t.dtype = get_dtype(in);
    t.dims = get_texts(in);
    t.extents = get_integers(in);
    t.constructors.resize(in->count("number of constructors", 2, sizeof(ValueType::Constructor)));
    for (ValueType::Constructor& c : t.constructors) {
      c.name = in->text();
      c.fields.resize(in->count("number of fields", 1, sizeof(uint32_t)));
      for (uint32_t& field : c.fields) field = in->varint32("type");
    }
  }
}

void get_pairs(ByteReader* in, const char* what, std::map<std::string, std::string>* pairs) {
  const size_t count = in->count(what, 2, 2 * sizeof(std::string) + 64);
  for (size_t i = 0; i < count; ++i) {
    std::string name = in->text();
    (*pairs)[std::move(name)] = in->text();
  }
}

void get_provenance(ByteReader* in, Executable* e) {
  Provenance& p = e->provenance;
  for (std::string* t : {&p.compiler, &p.toolchain, &p.model, &p.database}) *t = in->text();
  get_pairs(in, "number of kernels", &p.kernels);
}

// A place in one of the data sections.
Bytes get_data(ByteReader* in, Bytes data, size_t alignment) {
  const uint64_t offset = in->varint_max(data.size(), "offset of data");
  const uint64_t size = in->varint_max(data.size() - offset, "size of data");
  if (offset % alignment != 0) in->fail("misaligned data");
  return data.subspan(static_cast<size_t>(offset), static_cast<size_t>(size));
}

// Pieces of data must not overlap: each may be copied, and what is copied must not grow beyond the
// file.
template <typename T>
void expect_apart(const ByteReader& in, const std::vector<T>& pieces, std::string_view what) {
  std::vector<Bytes> all;
  for (const T& p : pieces)
    if (!p.bytes.empty()) all.push_back(p.bytes);
  std::sort(all.begin(), all.end(), [](Bytes a, Bytes b) { return a.data() < b.data(); });
  for (size_t i = 1; i < all.size(); ++i)
    if (all[i].data() < all[i - 1].data() + all[i - 1].size())
      in.fail(fmt::format("the data of two {} overlaps", what));
}

void get_constants(ByteReader* in, Bytes data, const std::shared_ptr<const void>& owner,
                   Executable* e) {
  e->constants.resize(in->count("number of constants", 7, sizeof(Constant)));
  for (Constant& c : e->constants) {
    c.name = in->text();
    c.dtype = get_dtype(in);
    c.shape = get_integers(in);
    c.hot = in->boolean();
    c.device = get_device(in);
    c.bytes = get_data(in, data, kConstantAlignment);
    c.owner = owner;
  }
  expect_apart(*in, e->constants, "constants");
}

void get_images(ByteReader* in, Bytes data, const std::shared_ptr<const void>& owner,
                Executable* e) {
  e->images.resize(in->count("number of images", 4, sizeof(NativeImage)));
  for (NativeImage& i : e->images) {
    i.target = in->text();
    i.features = get_texts(in);
    i.bytes = get_data(in, data, kDataAlignment);
    i.owner = owner;
  }
  expect_apart(*in, e->images, "images");
}

// Behind the kernels.
void get_divisible(ByteReader* in, Executable* e) {
  const size_t count = in->count("number of divisible implementations", 2);
  for (size_t n = 0; n < count; ++n) {
    const uint64_t kernel = in->varint(), implementation = in->varint();
    if (kernel >= e->kernels.size() || implementation >= e->kernels[kernel].implementations.size())
      in->fail(fmt::format("implementation {} of kernel {} is divisible and not there",
                           implementation, kernel));
    e->kernels[kernel].implementations[implementation].divisible = true;
  }
}

// Behind the kernels and images.
void get_gpu(ByteReader* in, Executable* e) {
  const size_t launches = in->count("number of launches", 14);
  for (size_t n = 0; n < launches; ++n) {
    const uint64_t kernel = in->varint(), implementation = in->varint();
    if (kernel >= e->kernels.size() ||
        implementation >= e->kernels[kernel].implementations.size() ||
        e->kernels[kernel].implementations[implementation].launch)
      in->fail(
          fmt::format("a launch of implementation {} of kernel {}, which has one or is not "
                      "there",
                      implementation, kernel));
    Launch& l = e->kernels[kernel].implementations[implementation].launch.emplace();
    for (DimProgram& p : l.grid) p = decode_dim_program(in);
    l.threads = in->varint32("number of threads");
    l.shared_bytes = in->varint32("bytes of shared memory");
    l.alignment = in->varint32("alignment of arguments");
  }
  const size_t images = in->count("number of images", 3);
  for (size_t n = 0; n < images; ++n) {
    const uint64_t image = in->varint();
    if (image >= e->images.size() || e->images[image].device != kCpuDevice)
      in->fail(fmt::format("the device of image {}, which has one or is not there", image));
    e->images[image].device = get_device(in);
    std::vector<NativeImage::Module>& modules = e->images[image].modules;
    modules.resize(in->count("number of modules", 2, sizeof(NativeImage::Module)));
    for (NativeImage::Module& m : modules) {
      m.symbol = in->text();
      m.bytes = in->varint();
    }
  }
}

// Behind the launches.
void get_tensor_maps(ByteReader* in, Executable* e) {
  const size_t launches = in->count("number of launches with tensor maps", 3);
  for (size_t n = 0; n < launches; ++n) {
    const uint64_t kernel = in->varint(), implementation = in->varint();
    if (kernel >= e->kernels.size() ||
        implementation >= e->kernels[kernel].implementations.size() ||
        !e->kernels[kernel].implementations[implementation].launch ||
        !e->kernels[kernel].implementations[implementation].launch->maps.empty())
      in->fail(
          fmt::format("tensor maps of implementation {} of kernel {}, which has some or no "
                      "launch",
                      implementation, kernel));
    std::vector<TensorMap>& maps = e->kernels[kernel].implementations[implementation].launch->maps;
    maps.resize(in->count("number of tensor maps", 2, sizeof(TensorMap)));
    if (maps.empty()) in->fail(fmt::format("no tensor map of kernel {}", kernel));
    for (TensorMap& m : maps) {
      m.argument = in->varint32("argument of a tensor map");
      m.axes.resize(in->count("rank of a tensor map", 4, sizeof(TensorMap::Axis)));
      for (TensorMap::Axis& a : m.axes) {
        a.extent = decode_dim_program(in);
        a.box = in->varint32("extent of a box");
      }
    }
  }
}

// Behind the launches, too.
void get_gpu_steps(ByteReader* in, Executable* e) {
  const size_t count = in->count("number of launches with steps", 3);
  for (size_t n = 0; n < count; ++n) {
    const uint64_t kernel = in->varint(), implementation = in->varint();
    Launch* launch = nullptr;
    if (kernel < e->kernels.size() && implementation < e->kernels[kernel].implementations.size())
      if (auto& l = e->kernels[kernel].implementations[implementation].launch) launch = &*l;
    if (!launch || launch->steps)
      in->fail(fmt::format("steps of implementation {} of kernel {}, which has some or no launch",
                           implementation, kernel));
    launch->steps = decode_dim_program(in);
  }
}

// `memory`: bytes that what is decoded may take.
Executable parse(Bytes file, const std::shared_ptr<const void>& owner, const LoadLimits& limits,
                 uint64_t memory, const std::string& place) {
  const Sections sections = open_file(file, place);
  auto bytes_of = [&](Section s) { return sections[static_cast<size_t>(s)]; };
  // Data sections must be aligned in memory: kernels load whole vectors.
  for (Section s : {Section::kConstantData, Section::kImageData})
    if (static_cast<size_t>(bytes_of(s).data() - file.data()) % kDataAlignment != 0)
      corrupt(place, fmt::format("malformed: section \"{}\" is misaligned", name_of(s)));

  Executable e;
  auto with = [&](Section s, auto&& get) {
    ByteReader in(bytes_of(s), fmt::format("{}: section \"{}\"", place, name_of(s)));
    in.limit_memory(&memory, kMemoryRemedy);
    get(&in);
    in.expect_end();
  };
  // Of a section that not every file has.
  auto with_any = [&](Section s, auto&& get) {
    if (bytes_of(s).data()) with(s, get);
  };
  with(Section::kFunctions, [&](ByteReader* in) { get_functions(in, &e); });
  with(Section::kScalarFunctions, [&](ByteReader* in) { get_scalar_functions(in, &e); });
  with(Section::kKernels, [&](ByteReader* in) { get_kernels(in, &e); });
  with(Section::kEntries, [&](ByteReader* in) { get_entries(in, &e); });
  with(Section::kTypes, [&](ByteReader* in) { get_types(in, &e); });
  with(Section::kTexts, [&](ByteReader* in) { e.texts = get_texts(in); });
  with(Section::kConstants,
       [&](ByteReader* in) { get_constants(in, bytes_of(Section::kConstantData), owner, &e); });
  with(Section::kImages,
       [&](ByteReader* in) { get_images(in, bytes_of(Section::kImageData), owner, &e); });
  with_any(Section::kProvenance, [&](ByteReader* in) { get_provenance(in, &e); });
  with_any(Section::kOptions,
           [&](ByteReader* in) { get_pairs(in, "number of options", &e.provenance.options); });
  with_any(Section::kPortable, [&](ByteReader* in) { get_portable(in, &e); });
  with_any(Section::kDivisible, [&](ByteReader* in) { get_divisible(in, &e); });
  with_any(Section::kGpu, [&](ByteReader* in) { get_gpu(in, &e); });
  with_any(Section::kTensorMaps, [&](ByteReader* in) { get_tensor_maps(in, &e); });
  with_any(Section::kGpuSteps, [&](ByteReader* in) { get_gpu_steps(in, &e); });
  uint64_t constants = 0;  // no overflow: they are apart
  for (const Constant& c : e.constants) constants += c.bytes.size();
  if (constants > limits.constants)
    throw Error(
        Status::kExhausted, place,
        fmt::format("its constants have {} bytes, {} may be loaded", constants, limits.constants),
        "raise constants_limit in the load options (nimble: --load-constants) if it is an "
        "honest file");
  e.memory = limits.memory - memory;
  return e;
}

}  // namespace

Executable read(const std::string& path, const ReadOptions& options) {
  const LoadLimits limits = options.limits.resolved(options.trust);
  if (options.trust) {
    const std::shared_ptr<const MappedFile> file = MappedFile::open(path);
    return parse(file->bytes(), file, limits, limits.memory, path);
  }
  const FileCopy file = copy_file(path, limits.memory, kMemoryRemedy);
  return parse(file.bytes, file.owner, limits, limits.memory - file.bytes.size(), path);
}

Executable deserialize(Bytes bytes, const ReadOptions& options, const std::string& place) {
  const LoadLimits limits = options.limits.resolved(options.trust);
  const FileCopy file = copy_bytes(bytes, limits.memory, place, kMemoryRemedy);
  return parse(file.bytes, file.owner, limits, limits.memory - file.bytes.size(), place);
}

}  // namespace nimble::exec
