#!/usr/bin/env python3
"""Embeds sentences with a compiled sentence encoder and prints their cosine similarities.

    scripts/embed.py model.nimble --tokenizer FOLDER_OR_tokenizer.json "First." "Second one." …

Without sentences it reads one a line from standard input. Each sentence runs at its own length, as
it would in a service: nothing is padded. Needs the Python packages numpy and tokenizers.
"""

import argparse
import json
import pathlib
import sys
import time

try:
    import numpy as np
    import tokenizers
except ImportError as error:
    sys.exit(f"embed.py: {error}; install numpy and tokenizers, or use the Python that "
             "scripts/quickstart made")

import nimble_ctypes

LONGEST = 512  # positions of BERT's tables, for folders that state no limit of their own
WARM_RUNS, TIMED_RUNS = 3, 20


def load_tokenizer(path):
    """Returns the tokenizer of a tokenizer.json or of the Hugging Face folder that holds one."""
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.exists():
        sys.exit(f"embed.py: {file}: no such file; --tokenizer takes a tokenizer.json or the "
                 "Hugging Face folder with one")
    tokenizer = tokenizers.Tokenizer.from_file(str(file))
    tokenizer.no_padding()
    stated = file.with_name("sentence_bert_config.json")
    limit = json.loads(stated.read_text()).get("max_seq_length") if stated.exists() else None
    tokenizer.enable_truncation(limit or LONGEST)
    return tokenizer


def embed(session, ids):
    """Returns (embedding of a row of token ids, median time of a run in µs)."""
    call = session.bind({"input_ids": np.array([ids], dtype=np.int64)})
    times = []
    for run in range(WARM_RUNS + TIMED_RUNS):
        start = time.perf_counter_ns()
        call.run()
        if run >= WARM_RUNS:
            times.append((time.perf_counter_ns() - start) / 1e3)
    outputs = call.outputs()
    if "sentence_embedding" not in outputs:
        sys.exit("embed.py: the model has no output sentence_embedding, only "
                 + ", ".join(outputs) + "; compile a sentence encoder")
    return outputs["sentence_embedding"][0].copy(), float(np.median(times))


def print_table(sentences, lengths, times, similarities):
    print("     tokens        µs  µs/token   sentence")
    for i, sentence in enumerate(sentences):
        print(f"{i + 1:3d}  {lengths[i]:6d}  {times[i]:8.0f}  {times[i] / lengths[i]:8.1f}   "
              f"{sentence}")
    print("\ncosine similarities")
    print("     " + "".join(f"{i + 1:7d}" for i in range(len(sentences))))
    for i, row in enumerate(similarities):
        print(f"{i + 1:3d}  " + "".join(f"{value:7.3f}" for value in row))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=pathlib.Path, help="compiled model (.nimble)")
    parser.add_argument("sentences", nargs="*", metavar="SENTENCE")
    parser.add_argument("--tokenizer", type=pathlib.Path, required=True, metavar="PATH",
                        help="tokenizer.json or the Hugging Face folder of the model")
    parser.add_argument("--threads", type=int, default=0, help="0 (default): all that are allowed")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    options = parser.parse_intermixed_args()
    sentences = options.sentences or [line.strip() for line in sys.stdin if line.strip()]
    if not sentences:
        parser.error("no sentences given")

    tokenizer = load_tokenizer(options.tokenizer)
    rows = [tokenizer.encode(sentence).ids for sentence in sentences]
    session = nimble_ctypes.Session(nimble_ctypes.Model(options.model), options.threads)
    results = [embed(session, ids) for ids in rows]
    vectors = np.stack([vector for vector, _ in results])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    similarities = vectors @ vectors.T
    lengths, times = [len(ids) for ids in rows], [time_us for _, time_us in results]
    if options.format == "json":
        json.dump({"sentences": sentences, "tokens": lengths, "microseconds": times,
                   "similarities": similarities.tolist()}, sys.stdout, indent=2)
        print()
    else:
        print_table(sentences, lengths, times, similarities)


if __name__ == "__main__":
    try:
        main()
    except nimble_ctypes.NimbleError as error:
        sys.exit(f"embed.py: {error}")
    except BrokenPipeError:
        sys.exit(1)
