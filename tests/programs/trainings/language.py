"""A language of thirty words, a tokenizer that knows them and a model of two layers that does not: nothing is downloaded."""

from __future__ import annotations

import random

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2ForSequenceClassification, GPT2LMHeadModel, PreTrainedTokenizerFast, TrainerCallback, set_seed

import said

torch.set_num_threads(1)

WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
VOCABULARY = ["<pad>", "<end>", "<unknown>", "count", "from", "to", "up", "down", ":", *WORDS]
TEMPLATE = "{% for m in messages %}{{ m['content'] }} {% endfor %}"


def tokenizer() -> PreTrainedTokenizerFast:
    words = Tokenizer(models.WordLevel({word: n for n, word in enumerate(VOCABULARY)}, unk_token="<unknown>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<end>", bos_token="<end>",
                                   unk_token="<unknown>", padding_side="right", model_max_length=32)
    made.chat_template = TEMPLATE
    return made


def model(kind=GPT2LMHeadModel, seed: int = 1, **more):
    set_seed(seed)
    return kind(GPT2Config(vocab_size=len(VOCABULARY), n_positions=32, n_embd=16, n_layer=2, n_head=2, bos_token_id=1,
                           eos_token_id=1, pad_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **more))


def reward_model():
    return model(GPT2ForSequenceClassification, num_labels=1)


def texts(count: int, seed: int = 3) -> list[tuple[str, str, str]]:
    """[(what is asked, the answer, a wrong one)]"""
    dice, made = random.Random(seed), []
    for _ in range(count):
        begin, length = dice.randrange(0, 5), dice.randrange(3, 6)
        right = WORDS[begin:begin + length]
        made.append((f"count up from {WORDS[begin]} :", " ".join(right), " ".join(reversed(right))))
    return made


class Saying(TrainerCallback):
    """Says what a Trainer logs."""

    def on_log(self, args, state, control, logs=None, **others):
        if "loss" in logs:
            said.loss(logs["loss"])
        if "eval_loss" in logs:
            said.evaluated(logs["eval_loss"])

    def on_train_end(self, args, state, control, **others):
        said.steps(state.global_step)


#: What every Trainer is told here: little work, each step logged, nothing kept and nobody asked.
ARGUMENTS = dict(max_steps=6, per_device_train_batch_size=4, per_device_eval_batch_size=4, logging_steps=1, learning_rate=1e-3,
                 report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True, seed=5)
