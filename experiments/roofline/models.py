"""The models: all-MiniLM-L6-v2, BERT-base, and T5-base's encoder with drawn weights."""

import dataclasses
from collections.abc import Callable


def of_experiment(name):
    """A model of an experiment that compares speeds, as that one has it."""
    def make(folder):
        from experiments.harness import experiment, models
        found = experiment.load(name)
        argument = found.nimble_models(models.folder(found))[found.nimble]
        if argument.startswith(str(models.folder(found))):  # one of the files that export makes
            models.export(found)
        return argument
    return make


def t5_base():
    from experiments.budget.models import Encoder, transformers
    t = transformers()
    return Encoder(t.T5EncoderModel(t.T5Config(
        d_model=768, d_kv=64, d_ff=3072, num_layers=12, num_heads=12, decoder_start_token_id=0)))


def make_t5(folder):
    from experiments.budget import models
    return models.model("t5-base-encoder", t5_base, models.IDS, {"b": (1, 4), "n": (2, 60)},
                        "T5-base's encoder").export(folder)


@dataclasses.dataclass(frozen=True)
class Model:
    title: str
    make: Callable  # (folder) → model argument of `nimble`
    cost: int  # of a run, roughly, in those of MiniLM: how measuring time is shared


MODELS = {"minilm": Model("all-MiniLM-L6-v2", of_experiment("minilm"), 1),
          "bert-base": Model("BERT-base", of_experiment("bert-base"), 8),
          "t5-encoder": Model("T5-base's encoder", make_t5, 8)}
