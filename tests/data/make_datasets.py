"""Writes files with Hugging Face's `datasets`, as its users export them, into tests/data/datasets:  make_datasets.py"""
import pathlib

import datasets

to = pathlib.Path(__file__).parent / "datasets"
texts = datasets.Dataset.from_dict({
    "id": [1, 2, 3, 4],
    "text": ["one two", "a \"quoted\" line\nand another", "naïve café 🎉 \u2028 end", "tab\there, back\\slash, slash/"]})
texts.to_json(to / "texts.jsonl")
texts.to_json(to / "texts.jsonl.gz", compression="gzip")
chats = datasets.Dataset.from_dict({"messages": [
    [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Größe?"}, {"role": "assistant", "content": "5 m"}]]})
chats.to_json(to / "chats.jsonl")
ids = datasets.Dataset.from_dict({"input_ids": [[5, 6, 7], [8, 9]], "attention_mask": [[1, 1, 1], [1, 1]]})
ids.to_json(to / "ids.jsonl")
table = datasets.Dataset.from_dict({
    "width": [1.5, -2.25e-7, 3e20, 0.1], "height": [1.0, 2.0, 3.0, 4.0], "species": [0, 1, 2, 1]})
table.to_csv(to / "table.csv")
# The texts, for the test: each between two newlines with a zero.
(to / "texts.want").write_bytes(b"".join(text.encode() + b"\0" for text in texts["text"]))
