#include "vm/executable/writer.h"

#include <algorithm>

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

constexpr uint8_t kZeros[kDataAlignment] = {};

void put_texts(const std::vector<std::string>& texts, ByteWriter* out) {
  out->varint(texts.size());
  for (const std::string& t : texts) out->text(t);
}

void put_functions(const Executable& e, ByteWriter* out) {
  out->varint(e.functions.size());
  for (const BytecodeFunction& f : e.functions) {
    out->text(f.name);
    out->text(f.origin);
    out->varint(f.parameters);
    out->varint(f.registers);
    out->varint(f.code.size());
    for (const Instruction& i : f.code) encode(i, out);
    out->varint(f.notes.size());
    for (const SourceNote& n : f.notes) {
      out->varint(n.instruction);
      out->text(n.text);
    }
  }
}

void put_scalar_functions(const Executable& e, ByteWriter* out) {
  out->varint(e.scalar_functions.size());
  for (const ScalarFunction& f : e.scalar_functions) {
    out->text(f.name);
    encode(f.program, out);
  }
}

void put_contract(const KernelContract& c, ByteWriter* out) {
  put_texts(c.symbols, out);
  out->varint(c.arguments.size());
  for (const KernelArgument& a : c.arguments) {
    out->u8(static_cast<uint8_t>(a.kind));
    if (a.kind == KernelArgument::Kind::kScalar) {
      out->varint(a.symbol);
      continue;
    }
    if (a.kind == KernelArgument::Kind::kData) continue;
    out->u8(static_cast<uint8_t>(a.dtype));
    out->u8(static_cast<uint8_t>(a.access));
    out->u8(a.collapse_leading);
    out->varint(a.dims.size());
    for (const DimProgram& d : a.dims) encode(d, out);
  }
  encode(c.scratch_bytes, out);
  out->varint(c.requirements.size());
  for (const DimProgram& p : c.requirements) encode(p, out);
}

void put_dispatch(const DispatchTree& tree, ByteWriter* out) {
  out->varint(tree.nodes.size());
  for (const DispatchNode& n : tree.nodes) {
    out->u8(static_cast<uint8_t>(n.test));
    out->varint(n.yes);
    if (n.test == DispatchNode::Test::kLeaf) continue;
    out->varint(n.no);
    out->svarint(n.threshold);
    out->u8(static_cast<uint8_t>(n.feature.kind));
    out->varint(n.feature.a);
    out->varint(n.feature.b);
    out->svarint(n.feature.t);
  }
}

void put_kernels(const Executable& e, ByteWriter* out) {
  out->varint(e.kernels.size());
  for (const Kernel& k : e.kernels) {
    out->text(k.name);
    out->text(k.source);
    out->text(k.workload);
    out->varint(static_cast<uint64_t>(k.device));
    put_contract(k.contract, out);
    put_dispatch(k.dispatch, out);
    out->varint(k.implementations.size());
    for (const Implementation& i : k.implementations) {
      out->u8(static_cast<uint8_t>(i.kind));
      out->text(i.symbol);
      out->text(i.config);
      out->text(i.template_name);
      out->svarint(i.max_threads);
      out->u64(i.code_hash);
    }
  }
}

// The portable forms of those kernels that have one, by index.
void put_portable(const Executable& e, ByteWriter* out) {
  size_t count = 0;
  for (const Kernel& k : e.kernels) count += k.portable.has_value();
  out->varint(count);
  for (size_t i = 0; i < e.kernels.size(); ++i) {
    if (!e.kernels[i].portable) continue;
    out->varint(i);
    encode(*e.kernels[i].portable, out);
  }
}

// A kernel that has nothing but its portable form: a reader that skips it could not run the file.
bool needs_portable(const Executable& e) {
  for (const Kernel& k : e.kernels)
    for (const Implementation& i : k.implementations)
      if (i.kind == ImplementationKind::kPortable) return true;
  return false;
}

// The implementations that are divisible; whether there is any.
bool put_divisible(const Executable& e, ByteWriter* out) {
  std::vector<std::pair<size_t, size_t>> all;
  for (size_t k = 0; k < e.kernels.size(); ++k)
    for (size_t i = 0; i < e.kernels[k].implementations.size(); ++i)
      if (e.kernels[k].implementations[i].divisible) all.emplace_back(k, i);
  out->varint(all.size());
  for (const auto& [k, i] : all) {
    out->varint(k);
    out->varint(i);
  }
  return !all.empty();
}

// The launches of implementations and the images that are not the CPU's; whether there is any.
bool put_gpu(const Executable& e, ByteWriter* out) {
  size_t launches = 0, images = 0;
  for (const Kernel& k : e.kernels)
    for (const Implementation& i : k.implementations) launches += i.launch.has_value();
  for (const NativeImage& i : e.images) images += i.device != kCpuDevice;
  out->varint(launches);
  for (size_t k = 0; k < e.kernels.size(); ++k)
    for (size_t i = 0; i < e.kernels[k].implementations.size(); ++i) {
      const std::optional<Launch>& launch = e.kernels[k].implementations[i].launch;
      if (!launch) continue;
      out->varint(k);
      out->varint(i);
      for (const DimProgram& p : launch->grid) encode(p, out);
      out->varint(launch->threads);
      out->varint(launch->shared_bytes);
      out->varint(launch->alignment);
    }
  out->varint(images);
  for (size_t i = 0; i < e.images.size(); ++i) {
    if (e.images[i].device == kCpuDevice) continue;
    out->varint(i);
    out->varint(static_cast<uint64_t>(e.images[i].device));
    out->varint(e.images[i].modules.size());
    for (const NativeImage::Module& m : e.images[i].modules) {
      out->text(m.symbol);
      out->varint(m.bytes);
    }
  }
  return launches + images > 0;
}

// The maps of launches; whether there is any.
bool put_tensor_maps(const Executable& e, ByteWriter* out) {
  std::vector<std::pair<size_t, size_t>> all;
  for (size_t k = 0; k < e.kernels.size(); ++k)
    for (size_t i = 0; i < e.kernels[k].implementations.size(); ++i) {
      const std::optional<Launch>& launch = e.kernels[k].implementations[i].launch;
      if (launch && !launch->maps.empty()) all.emplace_back(k, i);
    }
  out->varint(all.size());
  for (const auto& [k, i] : all) {
    const std::vector<TensorMap>& maps = e.kernels[k].implementations[i].launch->maps;
    out->varint(k);
    out->varint(i);
    out->varint(maps.size());
    for (const TensorMap& m : maps) {
      out->varint(m.argument);
      out->varint(m.axes.size());
      for (const TensorMap::Axis& a : m.axes) {
        encode(a.extent, out);
        out->varint(a.box);
      }
    }
  }
  return !all.empty();
}

// The steps of launches; whether there are any.
bool put_gpu_steps(const Executable& e, ByteWriter* out) {
  size_t count = 0;
  const auto each = [&](const auto& visit) {
    for (size_t k = 0; k < e.kernels.size(); ++k)
      for (size_t i = 0; i < e.kernels[k].implementations.size(); ++i)
        if (const auto& launch = e.kernels[k].implementations[i].launch; launch && launch->steps)
          visit(k, i, *launch->steps);
  };
  each([&](size_t, size_t, const DimProgram&) { ++count; });
  out->varint(count);
  each([&](size_t kernel, size_t implementation, const DimProgram& steps) {
    out->varint(kernel);
    out->varint(implementation);
    encode(steps, out);
  });
  return count > 0;
}

void put_ports(const std::vector<Port>& ports, ByteWriter* out) {
  out->varint(ports.size());
  for (const Port& p : ports) {
    out->text(p.name);
    out->varint(static_cast<uint64_t>(p.type + 1));
    out->u8(static_cast<uint8_t>(p.dtype));
    put_texts(p.dims, out);
    out->varint(p.extents.size());
    for (int64_t x : p.extents) out->svarint(x);
    out->text(p.default_fill);
  }
}

void put_entries(const Executable& e, ByteWriter* out) {
  out->varint(e.entries.size());
  for (const EntryPoint& p : e.entries) {
    out->text(p.name);
    out->varint(p.function);
    put_ports(p.inputs, out);
    put_ports(p.outputs, out);
  }
}

void put_types(const Executable& e, ByteWriter* out) {
  out->varint(e.types.size());
  for (const ValueType& t : e.types) {
    out->u8(static_cast<uint8_t>(t.kind));
    out->text(t.name);
    out->u8(static_cast<uint8_t>(t.dtype));
    put_texts(t.dims, out);
    out->varint(t.extents.size());
    for (int64_t x : t.extents) out->svarint(x);
    out->varint(t.constructors.size());
    for (const ValueType::Constructor& c : t.constructors) {
      out->text(c.name);
      out->varint(c.fields.size());
      for (uint32_t field : c.fields) out->varint(field);
    }
  }
}

void put_pairs(const std::map<std::string, std::string>& pairs, ByteWriter* out) {
  out->varint(pairs.size());
  for (const auto& [name, value] : pairs) {
    out->text(name);
    out->text(value);
  }
}

void put_provenance(const Provenance& p, ByteWriter* out) {
  for (const std::string* t : {&p.compiler, &p.toolchain, &p.model, &p.database}) out->text(*t);
  put_pairs(p.kernels, out);
}

// A section as the pieces of which it consists, in order.
struct Piece {
  Section id;
  uint32_t flags;
  size_t alignment;
  std::vector<Bytes> parts;
  uint64_t size = 0;

  void append(Bytes bytes) {
    if (bytes.empty()) return;
    parts.push_back(bytes);
    size += bytes.size();
  }
  void pad_to(size_t multiple) {
    if (const size_t over = size % multiple) append(Bytes(kZeros, multiple - over));
  }
};

// The whole file as parts: `storage` owns what is not the executable's own.
struct Layout {
  std::vector<std::vector<uint8_t>> storage;
  std::vector<Bytes> parts;
};

Layout lay_out(const Executable& e) {
  ByteWriter functions, scalars, constants, kernels, images, entries, types, texts, provenance,
      portable, options, gpu, divisible, gpu_steps, maps;
  Piece constant_data{Section::kConstantData, kRequired, kDataAlignment, {}};
  Piece image_data{Section::kImageData, kRequired, kDataAlignment, {}};
  put_functions(e, &functions);
  put_scalar_functions(e, &scalars);
  put_kernels(e, &kernels);
  put_entries(e, &entries);
  put_types(e, &types);
  put_texts(e.texts, &texts);
  put_provenance(e.provenance, &provenance);
  put_portable(e, &portable);
  put_pairs(e.provenance.options, &options);

  constants.varint(e.constants.size());
  for (const Constant& c : e.constants) {
    constant_data.pad_to(kConstantAlignment);
    constants.text(c.name);
    constants.u8(static_cast<uint8_t>(c.dtype));
    constants.varint(c.shape.size());
    for (int64_t x : c.shape) constants.svarint(x);
    constants.u8(c.hot);
    constants.varint(static_cast<uint64_t>(c.device));
    constants.varint(constant_data.size);
    constants.varint(c.bytes.size());
    constant_data.append(c.bytes);
  }
  images.varint(e.images.size());
  for (const NativeImage& i : e.images) {
    image_data.pad_to(kDataAlignment);
    images.text(i.target);
    put_texts(i.features, &images);
    images.varint(image_data.size);
    images.varint(i.bytes.size());
    image_data.append(i.bytes);
  }

  Layout out;
  out.storage.reserve(20);
  std::vector<Piece> sections;
  auto add = [&](Section id, uint32_t flags, ByteWriter* w) {
    out.storage.push_back(w->take());
    Piece p{id, flags, kSectionAlignment, {}};
    p.append(out.storage.back());
    sections.push_back(std::move(p));
  };
  add(Section::kFunctions, kRequired, &functions);
  add(Section::kScalarFunctions, kRequired, &scalars);
  add(Section::kConstants, kRequired, &constants);
  add(Section::kKernels, kRequired, &kernels);
  add(Section::kImages, kRequired, &images);
  add(Section::kEntries, kRequired, &entries);
  add(Section::kTexts, kRequired, &texts);
  add(Section::kProvenance, 0, &provenance);
  add(Section::kPortable, needs_portable(e) ? kRequired : 0, &portable);
  add(Section::kTypes, kRequired, &types);
  add(Section::kOptions, 0, &options);
  if (put_gpu(e, &gpu)) add(Section::kGpu, kRequired, &gpu);
  if (put_gpu_steps(e, &gpu_steps)) add(Section::kGpuSteps, kRequired, &gpu_steps);
  if (put_divisible(e, &divisible)) add(Section::kDivisible, 0, &divisible);
  if (put_tensor_maps(e, &maps)) add(Section::kTensorMaps, kRequired, &maps);
  sections.push_back(std::move(constant_data));
  sections.push_back(std::move(image_data));

  ByteWriter header;
  header.bytes(kMagic);
  header.u32(kFormatVersion);
  header.u32(0);
  header.u32(static_cast<uint32_t>(sections.size()));
  header.u32(0);
  uint64_t at = kHeaderSize + sections.size() * kTableEntrySize + sizeof(uint64_t);
  const uint64_t header_end = at;
  std::vector<uint64_t> offsets;
  for (const Piece& s : sections) {
    at = *try_align_up(at, s.alignment);
    offsets.push_back(at);
    at += s.size;
  }
  header.u64(at);
  for (size_t i = 0; i < sections.size(); ++i) {
    Hasher64 hash;
    for (const Bytes& part : sections[i].parts) hash.update(part);
    header.u32(static_cast<uint32_t>(sections[i].id));
    header.u32(sections[i].flags);
    header.u64(offsets[i]);
    header.u64(sections[i].size);
    header.u64(hash.digest());
  }
  header.u64(hash64(header.view()));
  NIMBLE_CHECK(header.size() == header_end);

  out.storage.push_back(header.take());
  out.parts.push_back(out.storage.back());
  at = header_end;
  for (size_t i = 0; i < sections.size(); ++i) {
    if (offsets[i] > at) out.parts.emplace_back(kZeros, offsets[i] - at);
    out.parts.insert(out.parts.end(), sections[i].parts.begin(), sections[i].parts.end());
    at = offsets[i] + sections[i].size;
  }
  return out;
}

}  // namespace

std::vector<uint8_t> serialize(const Executable& executable) {
  const Layout layout = lay_out(executable);
  ByteWriter out;
  for (const Bytes& part : layout.parts) out.bytes(part);
  return out.take();
}

void write(const Executable& executable, const std::string& path) {
  write_file_atomically(path, lay_out(executable).parts);
}

}  // namespace nimble::exec
