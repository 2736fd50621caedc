"""BERT-base for the peers that read PyTorch or ONNX: Hugging Face's own module."""

import torch

from experiments.bert_base import weights


class Bert(torch.nn.Module):
    """input_ids, attention_mask and token_type_ids (b, n) i64 → last_hidden_state (b, n, 768)."""

    def __init__(self):
        super().__init__()
        import transformers
        transformers.logging.set_verbosity_error()
        config = transformers.BertConfig(
            vocab_size=weights.VOCABULARY, hidden_size=weights.WIDTH,
            num_hidden_layers=weights.LAYERS, num_attention_heads=weights.HEADS,
            intermediate_size=weights.INNER, max_position_embeddings=weights.POSITIONS,
            type_vocab_size=weights.SEGMENTS, layer_norm_eps=weights.EPSILON)
        config._attn_implementation = "sdpa"
        self.bert = transformers.BertModel(config, add_pooling_layer=False)
        state = {name: torch.from_numpy(value) for name, value in weights.weights().items()}
        missing, unexpected = self.bert.load_state_dict(state, strict=False)
        if unexpected or any(name not in dict(self.bert.named_buffers()) for name in missing):
            raise RuntimeError(f"weights.py and BertModel differ: {missing}, {unexpected}")

    def forward(self, input_ids, attention_mask, token_type_ids):
        return self.bert(input_ids=input_ids, attention_mask=attention_mask,
                         token_type_ids=token_type_ids).last_hidden_state


def make_module():
    """Returns the module in inference mode with the weights of weights.py."""
    return Bert().eval()
