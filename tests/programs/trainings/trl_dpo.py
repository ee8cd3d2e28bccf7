"""TRL's direct preference optimization, with a reference model: trl_dpo.py FOLDER"""

import sys

import language
from datasets import Dataset
from trl import DPOConfig, DPOTrainer

pairs = [{"prompt": asked, "chosen": " " + right, "rejected": " " + wrong} for asked, right, wrong in language.texts(32)]
trainer = DPOTrainer(
    model=language.model(), ref_model=language.model(), processing_class=language.tokenizer(),
    train_dataset=Dataset.from_list(pairs[:24]), eval_dataset=Dataset.from_list(pairs[24:]), callbacks=[language.Saying()],
    args=DPOConfig(output_dir=sys.argv[1], max_length=24, eval_strategy="steps", eval_steps=3, bf16=False,
                   gradient_checkpointing=False, **language.ARGUMENTS))
trainer.train()
