// Builds BERT in the IR from its configuration and weights.
//
// The graph is that of "BERT: Pre-training of Deep Bidirectional Transformers" (Devlin et al.,
// 2018) as transformers' BertModel computes it at inference: post-norm layers, learned absolute
// positions 0…n-1. Attention, layer normalisation and the activation are emitted as the operators
// that have kernels of their own, so no pass needs to find them again. Linear weights stay as
// PyTorch stores them, (out, in): the product transposes, and packing drops that at compile time.
#include <cmath>

#include "compiler/frontend/huggingface/config.h"
#include "compiler/frontend/huggingface/huggingface.h"
#include "compiler/frontend/huggingface/weights.h"
#include "compiler/ir/builder.h"

namespace nimble::frontend {
namespace {

using ir::Atom;
using ir::Attrs;
using ir::Dim;
using ir::VarRef;

using Axes = std::vector<int64_t>;

// Added to the scores of masked keys. Its exponential is exactly 0 beside any unmasked score, and
// a row without any unmasked key gets equal weights, not NaN: the sum with a score is finite.
constexpr float kMasked = -1e30f;

class BertBuilder {
 public:
  BertBuilder(const BertConfig& config, const PoolingConfig& pooling, const std::string& folder)
      : config_(config), pooling_(pooling), weights_(folder) {
    if (!weights_.has("embeddings.word_embeddings.weight")) weights_.set_prefix("bert.");
  }

  ir::Module build() {
    const Dim b = Dim::symbol("b"), n = Dim::symbol("n");
    const ir::Type ids = ir::tensor_type({b, n}, DType::kI64);
    VarRef input_ids = ir::make_var("input_ids", ids);
    VarRef attention_mask = ir::make_var("attention_mask", ids);
    VarRef token_type_ids = ir::make_var("token_type_ids", ids);

    mask_ = call("cast", {attention_mask}, {{"dtype", DType::kF32}}, "mask");
    VarRef x = embeddings(input_ids, token_type_ids);
    VarRef absent = call("sub", {scalar(1), mask_}, {}, "absent");
    VarRef bias = call("mul", {absent, scalar(kMasked)}, {}, "mask_bias");
    bias = call("unsqueeze", {bias}, {{"axes", Axes{1, 2}}}, "mask_bias");  // (b, 1, 1, n)
    for (int64_t i = 0; i < config_.layers; ++i)
      x = layer(fmt::format("encoder.layer.{}.", i), x, bias);

    ir::Module m;
    ir::Module::Signature signature;
    signature.input_names = {"input_ids", "attention_mask", "token_type_ids"};
    signature.input_defaults = {"", "ones", "zeros"};
    std::vector<Atom> results = {x};
    signature.output_names = {"last_hidden_state"};
    if (!pooling_.modes.empty()) {
      results.push_back(sentence_embedding(x));
      signature.output_names.push_back("sentence_embedding");
    } else if (weights_.has("pooler.dense.weight")) {
      results.push_back(pooler(x));
      signature.output_names.push_back("pooler_output");
    }
    Atom result = results[0];
    if (results.size() > 1) result = out_.bind(ir::make_tuple(results), "results");
    m.set("main",
          ir::make_function_of({input_ids, attention_mask, token_type_ids}, out_.finish(result)));
    m.signatures["main"] = std::move(signature);
    return m;
  }

 private:
  VarRef call(const std::string& op, std::vector<Atom> args, Attrs attrs, const std::string& hint) {
    ir::Location location;
    location.source_name = place_.empty() ? hint : place_ + hint;
    return out_.call(op, std::move(args), std::move(attrs), hint, std::move(location));
  }

  static Atom scalar(float v) { return Atom::of(ir::Tensor::scalar_f32(v)); }
  Atom weight(const std::string& name, const std::vector<int64_t>& shape) const {
    return Atom::of(weights_.get(name, shape));
  }

  VarRef linear(const std::string& name, const VarRef& x, int64_t in, int64_t out,
                const std::string& hint) {
    VarRef product =
        call("matmul", {x, weight(name + ".weight", {out, in})}, {{"transpose_b", true}}, hint);
    return call("add", {product, weight(name + ".bias", {out})}, {}, hint);
  }

  VarRef norm(const std::string& name, const VarRef& x) {
    // Weights converted from TensorFlow have their old names.
    const bool old = weights_.has(name + ".gamma");
    return call("layer_norm",
                {x, weight(name + (old ? ".gamma" : ".weight"), {config_.hidden}),
                 weight(name + (old ? ".beta" : ".bias"), {config_.hidden})},
                {{"epsilon", config_.epsilon}, {"axis", int64_t{-1}}}, "norm");
  }

  VarRef embeddings(VarRef ids, const VarRef& types) {
    place_ = "embeddings.";
    const int64_t h = config_.hidden, most = config_.positions;
    const Dim n = Dim::symbol("n");
    // max(n, most) = most says n <= most, so that the slice of positions below has n rows.
    ids = call("assert_shape", {ids},
               {{"left", std::vector<Dim>{ir::max(n, Dim(most))}},
                {"right", std::vector<Dim>{Dim(most)}},
                {"what", fmt::format("n, the tokens of a row, is at most {}: the model has no "
                                     "positions beyond (max_position_embeddings)",
                                     most)}},
               "input_ids");
    const Attrs rows = {{"axis", int64_t{0}}};
    VarRef word =
        call("gather", {weight("embeddings.word_embeddings.weight", {config_.vocabulary, h}), ids},
             rows, "word");
    VarRef type = call(
        "gather", {weight("embeddings.token_type_embeddings.weight", {config_.types, h}), types},
        rows, "type");
    VarRef position = call(
        "slice", {weight("embeddings.position_embeddings.weight", {most, h})},
        {{"axes", Axes{0}}, {"starts", std::vector<Dim>{Dim(0)}}, {"ends", std::vector<Dim>{n}}},
        "position");
    VarRef sum = call("add", {word, type}, {}, "sum");
    sum = call("add", {sum, position}, {}, "sum");
    return norm("embeddings.LayerNorm", sum);
  }

  VarRef activation(const VarRef& x) {
    if (config_.activation != "silu") return call(config_.activation, {x}, {}, "activation");
    return call("mul", {x, call("sigmoid", {x}, {}, "gate")}, {}, "activation");
  }

  VarRef layer(const std::string& name, const VarRef& x, const VarRef& bias) {
    place_ = name;
    const int64_t h = config_.hidden;
    const std::string self = name + "attention.self.";
    VarRef q = linear(self + "query", x, h, h, "query");
    VarRef k = linear(self + "key", x, h, h, "key");
    VarRef v = linear(self + "value", x, h, h, "value");
    const double width = static_cast<double>(h) / static_cast<double>(config_.heads);
    VarRef context = call("attention", {q, k, v, bias},
                          {{"heads", config_.heads}, {"scale", 1 / std::sqrt(width)}}, "attention");
    VarRef attended = linear(name + "attention.output.dense", context, h, h, "attended");
    attended =
        norm(name + "attention.output.LayerNorm", call("add", {attended, x}, {}, "residual"));

    VarRef inner = linear(name + "intermediate.dense", attended, h, config_.intermediate, "inner");
    VarRef outer =
        linear(name + "output.dense", activation(inner), config_.intermediate, h, "outer");
    return norm(name + "output.LayerNorm", call("add", {outer, attended}, {}, "residual"));
  }

  VarRef first_token(const VarRef& x) {
    return call("gather", {x, Atom::of(ir::Tensor::scalar_i64(0))}, {{"axis", int64_t{1}}},
                "first");
  }

  VarRef pooler(const VarRef& x) {
    place_ = "pooler.";
    VarRef dense = linear("pooler.dense", first_token(x), config_.hidden, config_.hidden, "dense");
    return call("tanh", {dense}, {}, "pooled");
  }

  VarRef pool(PoolingMode mode, const VarRef& x) {
    if (mode == PoolingMode::kCls) return first_token(x);
    VarRef mask = call("unsqueeze", {mask_}, {{"axes", Axes{2}}}, "mask");  // (b, n, 1)
    const Attrs over_tokens = {{"axes", Axes{1}}, {"keepdims", false}};
    if (mode == PoolingMode::kMax) {
      VarRef present = call("greater", {mask, scalar(0)}, {}, "present");
      VarRef kept = call("where", {present, x, scalar(-1e9f)}, {}, "kept");
      return call("reduce_max", {kept}, over_tokens, "pooled");
    }
    VarRef sum = call("sum", {call("mul", {x, mask}, {}, "kept")}, over_tokens, "sum");
    VarRef count = call("sum", {mask_}, {{"axes", Axes{1}}, {"keepdims", true}}, "count");
    count = call("clip", {count}, {{"min", 1e-9}}, "count");  // a row without tokens gives 0
    if (mode == PoolingMode::kMeanSqrtLen) count = call("sqrt", {count}, {}, "count");
    return call("div", {sum, count}, {}, "pooled");
  }

  VarRef sentence_embedding(const VarRef& x) {
    place_ = "pooling.";
    std::vector<Atom> pooled;
    for (PoolingMode mode : pooling_.modes) pooled.emplace_back(pool(mode, x));
    VarRef y = pooled.size() == 1 ? pooled[0].var
                                  : call("concat", pooled, {{"axis", int64_t{1}}}, "pooled");
    if (!pooling_.normalise) return y;
    return call("l2_normalize", {y}, {{"axis", int64_t{-1}}, {"epsilon", 1e-12}},
                "sentence_embedding");
  }

  const BertConfig& config_;
  const PoolingConfig& pooling_;
  Weights weights_;
  ir::BlockBuilder out_;
  VarRef mask_;        // (b, n) f32
  std::string place_;  // prefix of the names of operators
};

}  // namespace

ir::Module import_huggingface(const std::string& folder) {
  const BertConfig config = read_bert_config(folder);
  const PoolingConfig pooling = read_pooling_config(folder);
  ir::Module m = BertBuilder(config, pooling, folder).build();
  m.source = folder;
  return m;
}

}  // namespace nimble::frontend
