// The code of a set's kernels: images of the executable, hashes that are compared with records, and
// text for people.
#include <algorithm>
#include <chrono>

#include "compiler/codegen/codegen.h"
#include "compiler/codegen/cuda/cuda.h"
#include "compiler/driver/elapsed.h"
#include "compiler/driver/kernel_set.h"
#include "compiler/driver/vendor_versions.h"
#include "vm/base/device_number.h"
#include "vm/base/hash.h"
#include "vm/executable/vendor_call.h"

namespace nimble::driver {
namespace {

std::string hash_of_code(const exec::Kernel& k, size_t first, size_t count,
                         const exec::DispatchTree& tails) {
  std::string text = count == 1 ? "" : tails.str(k.contract.symbols);
  for (size_t at = first; at < first + count; ++at) {
    const exec::Implementation& i = k.implementations[at];
    if (i.kind == exec::ImplementationKind::kNative) {
      text += hex(i.code_hash);
      continue;
    }
    // Of a GPU's library the version that is to run, which need not be here.
    const bool told = is_gpu(k.device) && !i.config.empty();
    text += told ? code_of_call(exec::vendor_call_of(i.config))
                 : code_of_routine(i.symbol, version_here(i.symbol));
  }
  return count == 1 ? text : hex(hash128(text));
}

}  // namespace

void KernelSet::compare_code(Entry& e) {
  tuned::TunedChoice& choice = *e.lookup.choice;
  std::vector<bool> stale(e.candidates.size());
  size_t changed = 0, unknown = 0;
  for (size_t c = 0; c < e.candidates.size(); ++c) {
    const std::string& measured = choice.code_hashes[c];
    changed += !measured.empty() && measured != e.code_hashes[c];
    unknown += measured.empty();
    stale[c] = measured != e.code_hashes[c];
  }
  using Outcome = tuned::Lookup::Outcome;
  // The default schedule under a person's override is no record.
  if (e.lookup.outcome == Outcome::kUntuned || e.lookup.outcome == Outcome::kMismatch) return;
  if (changed + unknown == 0) return;
  choice.evidence = tuned::with_stale(choice.evidence, stale);
  const auto add = [&](const std::string& why) {
    e.lookup.reason += (e.lookup.reason.empty() ? "" : "; ") + why;
  };
  if (changed > 0)
    add(fmt::format("the code of {} of {} schedules has changed since it was measured{}", changed,
                    e.candidates.size(),
                    e.lookup.other_toolchain.empty() ? "" : ": " + e.lookup.other_toolchain));
  if (unknown > 0)
    add(fmt::format("of {} of {} schedules the code that was measured is not known", unknown,
                    e.candidates.size()));
  if (e.lookup.outcome == Outcome::kTuned) e.lookup.outcome = Outcome::kStale;
}

void KernelSet::tell_serialized(Entry& e, const std::string& said) {
  const std::string problem =
      "the assembler does products of groups of warps one after the other: " + said;
  if (e.fixed || e.by_hand)
    throw Error(Status::kUnsupported, e.name, problem,
                "choose another configuration of its template");
  e.lookup.reason +=
      fmt::format("{}{}; tune again with this NVRTC", e.lookup.reason.empty() ? "" : "; ", problem);
}

KernelSet::Listing KernelSet::listing() const {
  Code code;
  std::set<std::string> messages;
  for (const Entry& e : entries_) {
    Entry scratch = e;
    exec::Kernel kernel;
    lower(scratch, {}, code, kernel, &messages);
  }
  Listing out;
  for (const kir::Function& f : code.cpu.own) {
    const codegen::Listing one = codegen::listing(f, target_);
    out.kernel_ir += kir::print(f);
    out.llvm_ir += one.llvm_ir;
    out.assembly += one.assembly;
  }
  for (const kir::Function& f : code.gpu.own) {
    out.kernel_ir += kir::print(f);
    out.cuda += codegen::cuda_source(f, gpus_[0]);
    out.ptx += codegen::cuda_assembly(f, gpus_[0]);
  }
  return out;
}

void KernelSet::finish(const CompileOptions& options, exec::Executable& out,
                       CompileReport* report) {
  auto say = [&](const std::string& text) {
    if (options.progress) options.progress(text);
  };
  check_knobs();
  auto begin = std::chrono::steady_clock::now();
  Code code;
  std::set<std::string> messages;
  for (Entry& e : entries_) {
    exec::Kernel kernel;
    lower(e, options.more_targets, code, kernel, &messages);
    out.kernels.push_back(std::move(kernel));
  }
  if (report) report->lower_ms += ms_since(begin);

  begin = std::chrono::steady_clock::now();
  if (options.portable)
    for (size_t k = 0; k < entries_.size(); ++k)
      if (!out.kernels[k].portable && entries_[k].host.empty())
        out.kernels[k].portable = portable_form(entries_[k], &messages);
  if (report) report->portable_ms += ms_since(begin);
  out.texts.insert(out.texts.end(), messages.begin(), messages.end());

  std::map<std::string, codegen::CompiledFunction> compiled;
  std::map<std::string, uint32_t> alignments;  // of arguments, whichever image is loaded
  std::map<std::string, codegen::CudaResources> resources;
  const auto say_image = [&](const std::vector<kir::Function>& kernels,
                             const kernels::TargetInfo& target) {
    const auto count = std::count_if(entries_.begin(), entries_.end(), [&](const Entry& e) {
      return target_of(e).is_gpu() == target.is_gpu();
    });
    say(fmt::format("generating code for {} kernels ({} variants) on {}", count, kernels.size(),
                    target.level));
  };
  std::map<std::string, std::string> serialized;  // what the assembler says of it, for any target
  const auto add_gpu_image = [&](const std::vector<kir::Function>& kernels,
                                 const kernels::TargetInfo& target) {
    if (kernels.empty()) return;
    say_image(kernels, target);
    begin = std::chrono::steady_clock::now();
    const std::vector<codegen::CudaObject> objects = codegen::compile_cuda(
        kernels, target, options.compile_threads, codegen::CodeCache::of_user());
    if (report) report->codegen_ms += ms_since(begin);
    auto image = std::make_shared<std::vector<uint8_t>>();
    std::vector<exec::NativeImage::Module> modules;
    for (const codegen::CudaObject& o : objects) {
      image->insert(image->end(), o.bytes.begin(), o.bytes.end());
      modules.push_back({o.function.name, o.bytes.size()});
      // The code of the first target is what records would be of.
      compiled.emplace(o.function.name, o.function);
      resources.emplace(o.function.name, o.resources);
      uint32_t& alignment = alignments[o.function.name];
      alignment = std::max(alignment, o.argument_alignment);
      if (report) report->cached += o.cached;
      if (!o.serialized.empty()) serialized.emplace(o.function.name, o.serialized);
    }
    out.images.push_back({target.level, {}, *image, image, kCudaDevice, std::move(modules)});
    if (report) report->images.emplace_back(target.level, image->size());
  };
  const auto add_image = [&](const std::vector<kir::Function>& kernels,
                             const kernels::TargetInfo& target) {
    if (kernels.empty()) return;
    say_image(kernels, target);
    begin = std::chrono::steady_clock::now();
    std::vector<codegen::CompiledObject> objects =
        codegen::compile_parallel(kernels, target, options.compile_threads,
                                  {.optimize = options.optimize}, codegen::CodeCache::of_user());
    if (report) report->codegen_ms += ms_since(begin);
    begin = std::chrono::steady_clock::now();
    auto image = std::make_shared<std::vector<uint8_t>>(codegen::link(objects));
    out.images.push_back({target.level, target.features, *image, image});
    if (report) report->link_ms += ms_since(begin);
    if (report) report->images.emplace_back(target.level, image->size());
    for (codegen::CompiledObject& o : objects) {
      for (codegen::CompiledFunction& f : o.functions) compiled[f.name] = f;
      if (report && o.cached) report->cached += o.functions.size();
    }
  };
  add_image(code.cpu.own, target_);
  for (size_t i = 0; i < code.cpu.more.size(); ++i)
    add_image(code.cpu.more[i], options.more_targets[i]);
  add_gpu_image(code.gpu.own, gpus_.empty() ? target_ : gpus_[0]);
  for (size_t i = 0; i < code.gpu.more.size(); ++i) add_gpu_image(code.gpu.more[i], gpus_[i + 1]);

  for (size_t k = 0; k < entries_.size(); ++k) {
    Entry& e = entries_[k];
    KernelReport row;
    for (exec::Implementation& i : out.kernels[k].implementations) {
      auto it = compiled.find(i.symbol);
      if (it != compiled.end()) {
        i.code_hash = std::stoull(it->second.code_hash.substr(0, 16), nullptr, 16);
        row.code_bytes += it->second.code_bytes;
      }
      if (i.launch) {
        i.launch->alignment = alignments.at(i.symbol);
        const codegen::CudaResources& r = resources.at(i.symbol);
        row.registers = std::max(row.registers, r.registers);
        row.spill_bytes = std::max(row.spill_bytes, r.spill_bytes);
        row.shared_bytes =
            std::max(row.shared_bytes, int64_t{i.launch->shared_bytes} + r.shared_bytes);
      }
      ++row.implementations;
    }
    for (const Entry::Piece& p : e.pieces)
      e.code_hashes.push_back(hash_of_code(out.kernels[k], p.first, p.count, p.tails));
    if (e.lookup.choice && !e.pieces.empty()) compare_code(e);
    const auto& all = out.kernels[k].implementations;
    const auto said = std::find_if(all.begin(), all.end(), [&](const exec::Implementation& i) {
      return serialized.contains(i.symbol);
    });
    if (said != all.end()) tell_serialized(e, serialized.at(said->symbol));
    row.kernel = out.kernels[k].name;
    row.source = e.source;
    row.workload = e.workload.key;
    row.template_name = e.candidates[0].template_name;
    row.outcome = e.lookup.outcome;
    row.reason = e.lookup.reason;
    row.threads = e.lookup.threads;
    row.device = e.device;
    row.evidence = e.lookup.choice   ? e.lookup.choice->evidence
                   : !e.host.empty() ? R"({"schedule":"host"})"
                   : e.by_hand
                       ? fmt::format(R"({{"schedule":"default","reason":"untuned","knobs":{}}})",
                                     kernels::to_json(knobs_.at(row.template_name)))
                       : R"({"schedule":"default","reason":"untuned"})";
    out.provenance.kernels[row.kernel] = row.evidence;
    if (report) report->kernels.push_back(std::move(row));
  }
}

}  // namespace nimble::driver
