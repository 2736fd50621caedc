// What the compiler takes from a tuning database of vendors' routines.
#include <filesystem>

#include "compiler/driver/test/tuned_fixture.h"
#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/reference/reference.h"
#include "vm/executable/dispatch_json.h"
#include "vm/executable/vendor_call.h"
#include "vm/library/registry.h"

namespace nimble::driver::testing {
namespace {

using exec::DispatchNode;
using exec::DispatchTree;

TEST_F(Tuned, AVendorsRoutineIsItsNameAndItsLibrarysVersion) {
  const rt::LibraryKernel* routine =
      rt::find_library_kernel(exec::ImplementationKind::kVendor, "onednn.matmul");
  ASSERT_TRUE(routine && routine->version);
  candidates_.push_back({tuned::kVendorTemplate, {}, "onednn.matmul"});
  const std::string code = code_of(candidates_.size() - 1);
  EXPECT_EQ(code, "onednn.matmul " + routine->version());
  EXPECT_TRUE(code.find("oneDNN ") != std::string::npos || !routine->unavailable().empty()) << code;
}

// One size has an entry of its own, for the vendor's routine; the rest is ours, and so is that size
// where the library is another or none.
TEST_F(Tuned, AVendorsRoutineServesItsExactSizeAndOursTheRest) {
  const rt::LibraryKernel* routine =
      rt::find_library_kernel(exec::ImplementationKind::kVendor, "onednn.matmul");
  candidates_.push_back({tuned::kVendorTemplate, {}, "onednn.matmul"});
  Change change;
  const DispatchTree tree = {{{DispatchNode::Test::kEqual, {}, 37, 1, 2},
                              {DispatchNode::Test::kLeaf, {}, 0, 1, 0},
                              {DispatchNode::Test::kLeaf, {}, 0, 0, 0}}};
  change.tree = exec::tree_to_json(tree, use_.workload.contract.symbols);
  table(1, {0, candidates_.size() - 1}, change);
  auto source = tuned::database_source(store_);
  CompileOptions options = options_of({"default"});
  options.tuned = source.get();
  options.policy_class = "warm";
  const ir::Module m = ir::infer_types(ir::parse_module(kDense));
  exec::Executable e = driver::compile(m, options, nullptr);
  size_t told = 0;
  for (const exec::Kernel& k : e.kernels)
    for (const exec::Implementation& i : k.implementations)
      if (i.kind == exec::ImplementationKind::kVendor) {
        ++told;
        const exec::VendorCall call = exec::vendor_call_of(i.config);
        EXPECT_EQ(call.library, routine->version());
        EXPECT_EQ(call.k, 24);
        EXPECT_EQ(call.n, 40);
        EXPECT_EQ(call.then.size(), 2u) << i.config;
      }
  EXPECT_EQ(told, 1u);
  const bool there = routine->unavailable().empty();
  for (const bool other_version : {false, true}) {
    exec::Executable copy = e;
    if (other_version)
      for (exec::Kernel& k : copy.kernels)
        for (exec::Implementation& i : k.implementations)
          if (i.kind == exec::ImplementationKind::kVendor) {
            exec::VendorCall call = exec::vendor_call_of(i.config);
            call.library = "oneDNN 1.0.0";
            i.config = exec::to_json(call);
          }
    auto model = load(std::move(copy));
    EXPECT_EQ(model->vendor_calls(), there && !other_version ? 1u : 0u);
    EXPECT_EQ(model->vendor_bytes() >= 24 * 40 * 4, there && !other_version);
    rt::Session session(model, {});
    Program p{"dense", kDense};
    for (int64_t n : {0, 1, 36, 37, 38, 130}) {
      const std::vector<ir::TensorRef> in = random_inputs(p, *m.find("main"), {{"n", n}}, 3);
      expect_close(run_session(session, "main", in),
                   reference::Interpreter(m).run_tensors("main", in), 1e-4);
    }
  }
}

// A table that knows nothing but the vendor's: ours is there all the same.
TEST_F(Tuned, OursStandsInWhereATableHasTheVendorsRoutineAlone) {
  candidates_.push_back({tuned::kVendorTemplate, {}, "onednn.matmul"});
  table(1, {candidates_.size() - 1});
  auto source = tuned::database_source(store_);
  CompileOptions options = options_of({"default"});
  options.tuned = source.get();
  options.policy_class = "warm";
  options.portable = false;
  const ir::Module m = ir::infer_types(ir::parse_module(kDense));
  auto model = load(driver::compile(m, options, nullptr));
  EXPECT_EQ(model->vendor_calls(), 0u) << "no size has an entry of its own";
  rt::Session session(model, {});
  Program p{"dense", kDense};
  for (int64_t n : {1, 37}) {
    const std::vector<ir::TensorRef> in = random_inputs(p, *m.find("main"), {{"n", n}}, 3);
    expect_close(run_session(session, "main", in),
                 reference::Interpreter(m).run_tensors("main", in), 1e-4);
  }
}

// Tables whose configuration of the vendor's routine is none for the workload: each is reported so.
class VendorConfigurations : public Tuned {
 protected:
  void expect_reported(const char* config, const char* why) {
    std::filesystem::remove_all(folder_ + "/tuning.db");
    store_ = db::Store::open(folder_ + "/tuning.db");
    Change change;
    change.template_name = tuned::kVendorTemplate;
    change.template_version = 1;
    change.config = config;
    table(1, {0}, change);
    const KernelReport k = compiled();
    EXPECT_EQ(k.outcome, tuned::Lookup::Outcome::kMismatch) << config;
    EXPECT_NE(k.reason.find(why), std::string::npos) << k.reason;
  }
};

// It once ended the compilation with an exception of the JSON library.
TEST_F(VendorConfigurations, WithoutARoutineAreReported) {
  for (const char* config : {"{}", R"({"routine":7})", "[]", "null", R"({"routine":""})"})
    expect_reported(config, "names no routine");
}

// A routine that the runtime would pass over, whatever its name is.
TEST_F(VendorConfigurations, OfAnotherWorkloadAreReported) {
  for (const char* config : {R"({"routine":"onednn.conv2d"})", R"({"routine":"host.copy"})",
                             R"({"routine":"no such\u0001"})"})
    expect_reported(config, "does not compute it");
}

}  // namespace
}  // namespace nimble::driver::testing
