// LLVM IR to an object file: the target machine and our own, short pass pipeline.
//
// LLVM's -O2 pipeline is made for scalar C++: it vectorises, unrolls, turns loops into memset,
// and takes most of the compile time. Kernels come out of their templates in the final form, so
// what runs here is: promotion of register buffers (SROA), common subexpressions, peephole
// combination, loop-invariant code motion, global value numbering. The target library
// info knows no function, so nothing is turned into a call.
#include <llvm/Analysis/TargetLibraryInfo.h>
#include <llvm/BinaryFormat/ELF.h>
#include <llvm/Bitcode/BitcodeWriter.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Object/ELFObjectFile.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/SmallVectorMemoryBuffer.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Transforms/InstCombine/InstCombine.h>
#include <llvm/Transforms/Scalar/ADCE.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/GVN.h>
#include <llvm/Transforms/Scalar/LICM.h>
#include <llvm/Transforms/Scalar/LoopPassManager.h>
#include <llvm/Transforms/Scalar/SROA.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>
#include <llvm/Transforms/Vectorize/LoadStoreVectorizer.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <numeric>

#include "compiler/codegen/codegen.h"
#include "compiler/codegen/llvm/architecture.h"
#include "compiler/codegen/llvm/emitter.h"
#include "compiler/codegen/llvm/pin_bounds.h"
#include "compiler/codegen/parallel.h"
#include "compiler/kernels/targets.h"
#include "compiler/kernels/tiles.h"
#include "compiler/kernels/unroll.h"
#include "vm/base/error.h"
#include "vm/base/hash.h"

namespace nimble::codegen {
namespace {

void initialise_once() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    LLVMInitializeAArch64TargetInfo();
    LLVMInitializeAArch64Target();
    LLVMInitializeAArch64TargetMC();
    LLVMInitializeAArch64AsmPrinter();
  });
}

std::unique_ptr<llvm::TargetMachine> make_machine(const kernels::TargetInfo& target,
                                                  const Options& options) {
  initialise_once();
  const ArchitectureTraits& architecture = architecture_of(target.level);
  std::string message, features;
  const llvm::Target* t = llvm::TargetRegistry::lookupTarget(architecture.triple, message);
  NIMBLE_CHECK(t != nullptr, "{}", message);
  for (const std::string& f : target.features) features += (features.empty() ? "+" : ",+") + f;
  llvm::TargetOptions o;
  o.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  o.FunctionSections = true;  // each function's code can be hashed on its own
  const auto level = options.optimize == 0   ? llvm::CodeGenOptLevel::Less
                     : options.optimize == 1 ? llvm::CodeGenOptLevel::Default
                                             : llvm::CodeGenOptLevel::Aggressive;
  return std::unique_ptr<llvm::TargetMachine>(
      t->createTargetMachine(architecture.triple, kernels::target_row(target.level).processor,
                             features, o, llvm::Reloc::PIC_, llvm::CodeModel::Small, level));
}

llvm::ModulePassManager pipeline(const kernels::TargetInfo& target, int level) {
  llvm::FunctionPassManager passes;
  passes.addPass(llvm::SROAPass(llvm::SROAOptions::ModifyCFG));
  passes.addPass(llvm::EarlyCSEPass(true));
  passes.addPass(llvm::SimplifyCFGPass());
  if (level > 0) {
    passes.addPass(llvm::InstCombinePass());
    passes.addPass(llvm::createFunctionToLoopPassAdaptor(llvm::LICMPass(llvm::LICMOptions()),
                                                         /*UseMemorySSA=*/true));
    passes.addPass(llvm::GVNPass());
    // Neighbours of a row that go into successive multiply-adds are loaded together where those
    // take a lane of a register.
    if (target.multiplies_by_lane) passes.addPass(llvm::LoadStoreVectorizerPass());
    passes.addPass(llvm::InstCombinePass());
    if (level > 1)
      passes.addPass(llvm::createFunctionToLoopPassAdaptor(llvm::LICMPass(llvm::LICMOptions()),
                                                           /*UseMemorySSA=*/true));
    passes.addPass(llvm::ADCEPass());
    passes.addPass(llvm::SimplifyCFGPass());
    passes.addPass(PinBounds());
  }
  llvm::ModulePassManager all;
  all.addPass(llvm::createModuleToFunctionPassAdaptor(std::move(passes)));
  return all;
}

void optimise(llvm::Module& module, const kernels::TargetInfo& target, llvm::TargetMachine& machine,
              int level) {
  llvm::LoopAnalysisManager lam;
  llvm::FunctionAnalysisManager fam;
  llvm::CGSCCAnalysisManager cam;
  llvm::ModuleAnalysisManager mam;
  llvm::TargetLibraryInfoImpl library(machine.getTargetTriple());
  library.disableAllFunctions();
  fam.registerPass([&] { return llvm::TargetLibraryAnalysis(library); });
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(mam);
  builder.registerCGSCCAnalyses(cam);
  builder.registerFunctionAnalyses(fam);
  builder.registerLoopAnalyses(lam);
  builder.crossRegisterProxies(lam, fam, cam, mam);
  pipeline(target, level).run(module, mam);
}

std::unique_ptr<llvm::Module> make_module(std::span<const kir::Function> functions,
                                          const kernels::TargetInfo& target,
                                          llvm::TargetMachine& machine,
                                          llvm::LLVMContext& context) {
  auto module = std::make_unique<llvm::Module>("kernels", context);
  module->setTargetTriple(machine.getTargetTriple().str());
  module->setDataLayout(machine.createDataLayout());
  for (const kir::Function& f : functions) {
    const std::string fault = kir::verify(f);
    NIMBLE_CHECK(fault.empty(), "malformed kernel: {}\n{}", fault, kir::print(f));
    if (f.launch)
      throw Error(Status::kUnsupported, f.name,
                  fmt::format("it is a GPU's kernel: {} has no blocks of threads", target.level));
    Emitter(*module, target)
        .emit(kir::unroll(kir::has_tiles(target, f) ? f : kir::expand_tiles(f)));
  }
  std::string text;
  llvm::raw_string_ostream out(text);
  NIMBLE_CHECK(!llvm::verifyModule(*module, &out), "{}", out.str());
  return module;
}

llvm::SmallVector<char, 0> generate(llvm::Module& module, llvm::TargetMachine& machine,
                                    llvm::CodeGenFileType type) {
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream out(bytes);
  llvm::legacy::PassManager passes;
  llvm::TargetLibraryInfoImpl library(machine.getTargetTriple());
  library.disableAllFunctions();
  passes.add(new llvm::TargetLibraryInfoWrapperPass(library));
  NIMBLE_CHECK(!machine.addPassesToEmitFile(passes, out, nullptr, type));
  passes.run(module);
  return bytes;
}

// Name and machine code of every function; fails on symbols that the object does not define.
std::vector<CompiledFunction> inspect(std::span<const kir::Function> functions,
                                      const kernels::TargetInfo& target,
                                      const std::vector<uint8_t>& bytes) {
  auto object = llvm::object::ObjectFile::createELFObjectFile(llvm::MemoryBufferRef(
      llvm::StringRef(reinterpret_cast<const char*>(bytes.data()), bytes.size()), "kernels"));
  NIMBLE_CHECK(static_cast<bool>(object), "{}", llvm::toString(object.takeError()));
  std::map<std::string, llvm::StringRef> code;
  for (const llvm::object::ELFSymbolRef symbol :
       llvm::cast<llvm::object::ELFObjectFileBase>(**object).symbols()) {
    const auto flags = llvm::cantFail(symbol.getFlags());
    const std::string name = llvm::cantFail(symbol.getName()).str();
    NIMBLE_CHECK(!(flags & llvm::object::SymbolRef::SF_Undefined) || name.empty(),
                 "a kernel refers to the outside symbol {}", name);
    if (symbol.getELFType() != llvm::ELF::STT_FUNC) continue;
    const auto section = llvm::cantFail(symbol.getSection());
    const llvm::StringRef text = llvm::cantFail(section->getContents());
    code[name] = text.substr(llvm::cantFail(symbol.getValue()), symbol.getSize());
  }
  std::vector<CompiledFunction> out;
  for (const kir::Function& f : functions) {
    kir::Function anonymous = f;
    anonymous.name = "kernel";
    const llvm::StringRef machine_code = code.at(f.name);
    // Levels that share a processor make the same code of what their features do not serve.
    std::string text = kernels::target_row(target.level).processor + "\n" + kir::print(anonymous);
    text.append(machine_code.data(), machine_code.size());
    out.push_back({f.name, hex(hash128(text)), machine_code.size()});
  }
  return out;
}

// Neighbours that share an object.
struct Part {
  size_t first, count, size;  // size: of the text
};

// The functions alone decide what shares an object: the executable's bytes are the same however
// many threads compile it. An object costs some milliseconds beside its functions, so small ones
// stand together.
std::vector<Part> split(std::span<const kir::Function> functions) {
  constexpr size_t kEnough = 4096;  // characters
  std::vector<Part> parts;
  for (size_t i = 0; i < functions.size(); ++i) {
    const size_t size = kir::print(functions[i]).size();
    if (parts.empty() || parts.back().size + size > kEnough) parts.push_back({i, 0, 0});
    ++parts.back().count;
    parts.back().size += size;
  }
  return parts;
}

// What an object is made of: the module before it is optimised, and all that works on it then.
Hash128 key_of(const llvm::Module& module, const kernels::TargetInfo& target,
               const llvm::TargetMachine& machine, const Options& options) {
  std::string text;
  llvm::raw_string_ostream out(text);
  out << backend_version() << ' ' << kCodegenVersion << ' ' << machine.getTargetTriple().str()
      << ' ' << machine.getTargetCPU() << ' ' << machine.getTargetFeatureString() << ' '
      << options.optimize << ' ';
  pipeline(target, options.optimize).printPipeline(out, [](llvm::StringRef name) { return name; });
  out << '\n';
  llvm::WriteBitcodeToFile(module, out);
  return CodeCache::key_of(out.str());
}

CompiledObject compile_on(llvm::TargetMachine& machine, std::span<const kir::Function> functions,
                          const kernels::TargetInfo& target, const Options& options,
                          CodeCache* cache) {
  llvm::LLVMContext context;
  context.setDiscardValueNames(true);  // nobody reads them
  const auto module = make_module(functions, target, machine, context);
  CompiledObject out{{}, {}, target.level};
  Hash128 key;
  if (cache) {
    key = key_of(*module, target, machine, options);
    if (auto kept = cache->find(key)) {
      out.bytes = std::move(*kept);
      out.cached = true;
    }
  }
  if (!out.cached) {
    optimise(*module, target, machine, options.optimize);
    const auto bytes = generate(*module, machine, llvm::CodeGenFileType::ObjectFile);
    out.bytes.assign(bytes.begin(), bytes.end());
    if (cache) cache->keep(key, out.bytes);
  }
  out.functions = inspect(functions, target, out.bytes);
  return out;
}

}  // namespace

std::string backend_version() {
  return "LLVM " LLVM_VERSION_STRING;
}

CompiledObject compile(std::span<const kir::Function> functions, const kernels::TargetInfo& target,
                       const Options& options) {
  return compile_on(*make_machine(target, options), functions, target, options, nullptr);
}

std::vector<CompiledObject> compile_parallel(std::span<const kir::Function> functions,
                                             const kernels::TargetInfo& target, int threads,
                                             const Options& options, CodeCache* cache) {
  const std::vector<Part> parts = split(functions);
  // The longest first, so that no thread begins it when the others are done.
  std::vector<size_t> order(parts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return parts[a].size > parts[b].size; });
  std::vector<CompiledObject> objects(parts.size());
  run_parallel(order.size(), threads, [&] {
    // One for all objects of a thread: what it knows of a subtarget takes milliseconds to make.
    return [&, machine = std::shared_ptr(make_machine(target, options))](size_t i) {
      const Part& p = parts[order[i]];
      objects[order[i]] =
          compile_on(*machine, functions.subspan(p.first, p.count), target, options, cache);
    };
  });
  return objects;
}

namespace {

std::string text_of(const llvm::Module& module) {
  std::string text;
  llvm::raw_string_ostream out(text);
  module.print(out, nullptr);
  return text;
}

}  // namespace

std::string llvm_ir(const kir::Function& f, const kernels::TargetInfo& target, bool optimized) {
  llvm::LLVMContext context;
  const auto machine = make_machine(target, {});
  const auto module = make_module({&f, 1}, target, *machine, context);
  if (optimized) optimise(*module, target, *machine, 2);
  return text_of(*module);
}

Listing listing(const kir::Function& f, const kernels::TargetInfo& target) {
  llvm::LLVMContext context;
  const auto machine = make_machine(target, {});
  const auto module = make_module({&f, 1}, target, *machine, context);
  optimise(*module, target, *machine, 2);
  Listing out;
  out.llvm_ir = text_of(*module);  // before the code generator's own passes change it
  const auto bytes = generate(*module, *machine, llvm::CodeGenFileType::AssemblyFile);
  out.assembly.assign(bytes.begin(), bytes.end());
  return out;
}

std::string assembly(const kir::Function& f, const kernels::TargetInfo& target) {
  return listing(f, target).assembly;
}

}  // namespace nimble::codegen
