"""TRL's supervised fine-tuning: trl_sft.py FOLDER"""

import sys

import language
from datasets import Dataset
from trl import SFTConfig, SFTTrainer

texts = [{"text": f"{asked} {answer}"} for asked, answer, _ in language.texts(32)]
trainer = SFTTrainer(
    model=language.model(), processing_class=language.tokenizer(), train_dataset=Dataset.from_list(texts[:24]),
    eval_dataset=Dataset.from_list(texts[24:]), callbacks=[language.Saying()],
    args=SFTConfig(output_dir=sys.argv[1], max_length=24, eval_strategy="steps", eval_steps=3, bf16=False,
                   gradient_checkpointing=False, **language.ARGUMENTS))
trainer.train()
