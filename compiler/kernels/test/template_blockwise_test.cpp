// The template "blockwise" against the reference interpreter.
#include <fmt/format.h>

#include "compiler/ir/blockwise.h"
#include "compiler/kernels/targets.h"
#include "compiler/kernels/templates/blockwise.h"
#include "compiler/kernels/test/knob_cases.h"
#include "compiler/kernels/test/level_cases.h"
#include "compiler/kernels/test/reference_harness.h"
#include "compiler/kernels/test/template_harness.h"

namespace nimble::kernels {
namespace {

struct Form {
  int64_t bits, block, k, n;
  bool zeros = false, bytes = false, epilogue = false;
};

std::string text_of(const std::vector<int64_t>& shape) {
  return fmt::format("({})", fmt::join(shape, ", "));
}

// A product of `m` rows, a number or a symbol, as a text.
Workload workload(const TargetInfo& target, const std::string& m, const Form& f,
                  const std::string& given_layout = "") {
  const std::string layout =
      given_layout.empty() ? blockwise_layout(target, f.bits, f.n) : given_layout;
  const ir::Blockwise form{f.bits, f.block, f.k, f.n, ir::parse_layout(layout)};
  const std::string scales = text_of(form.scale_shape());
  std::string text =
      fmt::format("fn @f(%x: Tensor[({}, {}), f32], %w: Tensor[{}, u8], %s: Tensor[{}, f32]", m,
                  f.k, text_of(form.weight_shape()), scales);
  if (f.zeros) text += fmt::format(", %z: Tensor[{}, u8]", scales);
  if (f.epilogue)
    text += fmt::format(", %b: Tensor[({0}), f32], %r: Tensor[({1}, {0}), f32]", f.n, m);
  text += fmt::format(
      ") {{ let %y = blockwise_matmul(%x, %w, %s{}) {{bits = {}, block = {}, k = {}, n = {}, "
      "layout = \"{}\"{}}};",
      f.zeros ? ", %z" : "", f.bits, f.block, f.k, f.n, layout,
      f.bytes ? ", activations = i8" : "");
  text +=
      f.epilogue ? " let %a = add(%y, %b); let %g = relu(%a); let %e = add(%r, %g); %e }" : " %y }";
  return testing::workload_of(text);
}

// 0, 1, … in an order that mixes few and many rows.
constexpr int64_t kRows[] = {1, 0, 5, 2, 33, 3, 8, 4, 17, 7, 130, 6, 16, 9};

void check(const Workload& w, const TargetInfo& target, const Form& f, int configurations) {
  // A number is up to 15 or 255 steps from its zero, which small scales and rows make up for.
  testing::check_rows(w, target, "blockwise", configurations, kRows, f.bits == 4 ? 0.25F : 0.0625F);
}

class BlockwiseTest : public testing::LevelTest {
 protected:
  void check_rows(const Form& f, int configurations, const std::string& m = "m") {
    check(workload(target_, m, f), target_, f, configurations);
  }
};

INSTANTIATE_TEST_SUITE_P(Targets, BlockwiseTest, ::testing::ValuesIn(machine_levels()),
                         testing::name_of_level);

TEST_P(BlockwiseTest, OfFourBits) {
  // Whole blocks and not, whole words and not, whole panels and not.
  for (const Form& f : {Form{4, 16, 64, 48}, Form{4, 32, 100, 50}, Form{4, 16, 1, 1},
                        Form{4, 64, 71, 33}, Form{4, 128, 40, 20}})
    check_rows(f, 8);
}

TEST_P(BlockwiseTest, OfEightBits) {
  for (const Form& f : {Form{8, 16, 64, 48}, Form{8, 32, 101, 50}, Form{8, 16, 2, 3}})
    check_rows(f, 8);
}

TEST_P(BlockwiseTest, WithZeros) {
  for (const Form& f : {Form{4, 16, 50, 40, true}, Form{8, 32, 45, 70, true}}) check_rows(f, 8);
}

TEST_P(BlockwiseTest, WithBiasActivationAndResidual) {
  check_rows(Form{4, 32, 70, 50, true, false, true}, 8);
  check_rows(Form{4, 32, 70, 50, false, true, true}, 8);
}

TEST_P(BlockwiseTest, WithActivationsInBytes) {
  for (const Form& f : {Form{4, 16, 64, 48, false, true}, Form{4, 32, 100, 50, true, true},
                        Form{8, 16, 37, 33, true, true}, Form{8, 64, 129, 16, false, true},
                        Form{4, 16, 1, 1, false, true}, Form{4, 128, 41, 20, true, true}})
    check_rows(f, 6);
}

TEST_P(BlockwiseTest, OfConstantRows) {
  for (const char* m : {"0", "1", "4", "5", "37"}) {
    check_rows(Form{4, 32, 70, 50, true}, 4, m);
    check_rows(Form{4, 32, 70, 50, true, true}, 3, m);
  }
}

TEST_P(BlockwiseTest, InSeveralPieces) {
  check_rows(Form{4, 32, 700, 20}, 6);
  check_rows(Form{8, 16, 650, 20, true}, 6);
}

// An odd number of panels, the last of which is not full, in one block of rows and in several: a
// stretch of the work begins and ends among the tiles of a panel.
TEST_P(BlockwiseTest, InEvenShares) {
  for (const auto& [n, panel] : {std::pair<int64_t, const char*>(37, "panel16x8"),
                                 std::pair<int64_t, const char*>(107, "panel48x8")})
    for (const bool bytes : {false, true})
      for (const bool several : {false, true}) {
        const Form f{4, 16, 24, n, true, bytes};
        ReferenceHarness harness(workload(target_, "m", f, panel), target_);
        Config config = harness.chosen()->default_config(harness.workload(), target_);
        config["split"] = std::string("columns");
        config["block_rows"] = int64_t{several ? 32 : 256};
        config["tails"] = std::string(several ? "checked" : "even");
        if (!bytes) {
          config["few"] = int64_t{0};
          config["k_block"] = int64_t{several ? 16 : 0};
        }
        SCOPED_TRACE(harness.workload().key + "\n" + to_json(config));
        ASSERT_TRUE(harness.chosen()->valid(harness.workload(), config, target_));
        harness.lower(config);
        for (const int64_t m : {0, 1, 29, 131})
          for (const int threads : {1, 2, 3, 8})
            harness.run({m}, threads, static_cast<unsigned>(m), 5e-5, 0.25F);
        if (HasFailure()) return;
      }
}

// No thread is woken for which there is no tile of a panel.
TEST_P(BlockwiseTest, OfFewTilesIsForFewThreads) {
  for (const bool bytes : {false, true}) {
    const Form f{4, 16, 16, 200, false, bytes};
    const int64_t panels =
        ir::ceildiv(f.n, ir::parse_layout(blockwise_layout(target_, f.bits, f.n))->width)
            .as_constant()
            .value();
    ASSERT_GE(panels, 4);
    const auto threads = [&](const char* m, const char* split) {
      const Workload w = workload(target_, m, f);
      const Template& t = *template_for(w, target_);
      Config config = t.default_config(w, target_);
      config["split"] = std::string(split);
      return t.lower(w, config, target_, "f").max_threads;
    };
    EXPECT_EQ(threads("1", "columns"), panels);
    EXPECT_GE(threads("100", "columns"), 2 * panels);
    EXPECT_EQ(threads("100", "columns"), panels * threads("100", "rows"));
    for (const char* split : {"columns", "rows"}) EXPECT_EQ(threads("m", split), 0) << split;
  }
}

// Of columns a share unpacks its own panels, of rows all; it rounds all rows of its blocks.
TEST_P(BlockwiseTest, OfColumnsIsDivisible) {
  const auto divisible = [&](const char* m, bool bytes, const char* split) {
    const Workload w = workload(target_, m, Form{4, 16, 16, 200, false, bytes});
    const Template& t = *template_for(w, target_);
    Config config = t.default_config(w, target_);
    config["split"] = std::string(split);
    return t.lower(w, config, target_, "f").divisible;
  };
  EXPECT_TRUE(divisible("m", false, "columns"));
  EXPECT_TRUE(divisible("1", false, "columns"));
  EXPECT_FALSE(divisible("m", false, "rows"));
  EXPECT_FALSE(divisible("m", true, "columns")) << "rounded rows";
}

// Weights that were packed for wider vectors, as a file for several levels has them.
TEST_P(BlockwiseTest, InPanelsOfWiderVectors) {
  for (const char* panel : {"panel64", "panel48", "panel16"})
    for (const bool bytes : {false, true}) {
      const Form f{4, 32, 70, 100, true, bytes};
      check(workload(target_, "m", f, std::string(panel) + "x8"), target_, f, 4);
    }
}

// A block far longer than k takes no more memory than k rows do.
TEST_P(BlockwiseTest, OfABlockThatIsLongerThanAll) {
  for (const bool bytes : {false, true}) {
    const Form f{4, 65536, 37, 20, true, bytes};
    check_rows(f, 2);
    const Workload w = workload(target_, "m", f);
    const Template& t = *template_for(w, target_);
    const Lowered lowered = t.lower(w, t.default_config(w, target_), target_, "f");
    for (const kir::BufferRef& b : lowered.functions.at(0).scratch) {
      const auto elements = b->extent.as_constant();
      ASSERT_TRUE(elements) << b->name;
      EXPECT_LE(*elements, 1 << 15) << b->name;
    }
  }
}

TEST_P(BlockwiseTest, RefusesOtherKnobs) {
  for (const bool bytes : {false, true}) {
    const Workload w = workload(target_, "m", Form{4, 32, 70, 50, false, bytes});
    testing::expect_refuses_other_knobs(*template_for(w, target_), w, target_);
  }
}

// Every number that 4 bits have, at every place of a word and beside every other number, comes out
// exactly, in rows that pick one each.
TEST_P(BlockwiseTest, EveryNumberIsExact) {
  for (const int64_t bits : {4, 8})
    for (const bool many : {false, true}) {
      const int64_t k = many ? 32 : 1, n = 1 << bits;
      const Form f{bits, 32, 32, n};
      const Workload w = workload(target_, many ? "32" : "1", f);
      const Template& t = *template_for(w, target_);
      const Lowered lowered = t.lower(w, t.default_config(w, target_), target_, "f");
      const auto run = harness_mode().prepare(lowered.functions.at(0), target_);
      const ir::Blockwise form{bits, 32, 32, n,
                               ir::parse_layout(blockwise_layout(target_, bits, n))};
      const auto size = [](const std::vector<int64_t>& shape) {
        size_t all = 1;
        for (int64_t d : shape) all *= static_cast<size_t>(d);
        return all;
      };
      std::vector<uint8_t> weights(size(form.weight_shape()));
      std::vector<float> scales(size(form.scale_shape()), 3), x(static_cast<size_t>(k * 32)),
          y(static_cast<size_t>(k * n));
      const auto number = [&](int64_t row, int64_t column) { return (column + 7 * row) % n; };
      for (int64_t row = 0; row < 32; ++row)
        for (int64_t column = 0; column < n; ++column) {
          const auto place = form.place(row, column);
          weights[static_cast<size_t>(place.byte)] |=
              static_cast<uint8_t>(number(row, column) << place.shift);
        }
      const auto bytes = [](auto& v) { return std::as_writable_bytes(std::span(v)); };
      for (int64_t first = 0; first < 32; first += k) {
        std::fill(x.begin(), x.end(), 0.0F);
        for (int64_t r = 0; r < k; ++r) x[static_cast<size_t>(r * 32 + first + r)] = 1;
        const std::vector<std::span<std::byte>> buffers = {bytes(x), bytes(weights), bytes(scales),
                                                           bytes(y)};
        ASSERT_EQ(run(buffers, {}, 2), 0);
        for (int64_t r = 0; r < k; ++r)
          for (int64_t column = 0; column < n; ++column)
            ASSERT_EQ(y[static_cast<size_t>(r * n + column)],
                      3.0F * static_cast<float>(number(first + r, column) - form.middle()))
                << bits << " bits, row " << first + r << ", column " << column;
      }
    }
}

}  // namespace
}  // namespace nimble::kernels
