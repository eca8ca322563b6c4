"""Writes sampling.cases: logits and the probabilities that Hugging Face's logits warpers leave of them, in PyTorch.

  python make_sampling.py        (transformers 5, PyTorch 2)

A line: temperature, top-k, top-p, the number of logits, the logits, and their probabilities; 0 and 1 turn a warper off.
"""
import os

import torch
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

torch.manual_seed(1)
os.chdir(os.path.dirname(os.path.abspath(__file__)))
flat, spread = torch.randn(16).round(decimals=2), (3 * torch.randn(24)).round(decimals=2)
tied = torch.tensor([1.0, 2.0, 2.0, 0.5, 2.0, 1.0, -1.0, 2.0])
masked = torch.where(torch.arange(16) % 3 == 0, -torch.inf, torch.randn(16).round(decimals=2))
with open("sampling.cases", "w") as out:
    for logits in (flat, spread, tied, masked):
        for temperature in (0.5, 1.0):
            for top_k in (0, 1, 3, 100):
                for top_p in (1.0, 0.9, 0.55, 0.01):
                    if logits is tied and top_p < 1:
                        continue  # which of equals is kept is nobody's word
                    scores = logits[None]
                    if temperature != 1:
                        scores = TemperatureLogitsWarper(temperature)(None, scores)
                    if top_k:
                        scores = TopKLogitsWarper(min(top_k, len(logits)))(None, scores)
                    if top_p < 1:
                        scores = TopPLogitsWarper(top_p)(None, scores)
                    p = scores[0].double().softmax(0)
                    numbers = " ".join([f"{x:.6g}" for x in logits.tolist()] + [f"{x:.7g}" for x in p.tolist()])
                    out.write(f"{temperature} {top_k} {top_p} {len(logits)} {numbers}\n")
