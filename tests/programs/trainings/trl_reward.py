"""TRL's reward model: trl_reward.py FOLDER"""

import sys

import language
from datasets import Dataset
from trl import RewardConfig, RewardTrainer

pairs = [{"chosen": f"{asked} {right}", "rejected": f"{asked} {wrong}"} for asked, right, wrong in language.texts(32)]
trainer = RewardTrainer(
    model=language.reward_model(), processing_class=language.tokenizer(), train_dataset=Dataset.from_list(pairs[:24]),
    eval_dataset=Dataset.from_list(pairs[24:]), callbacks=[language.Saying()],
    args=RewardConfig(output_dir=sys.argv[1], max_length=24, eval_strategy="steps", eval_steps=3, bf16=False,
                      gradient_checkpointing=False, **language.ARGUMENTS))
trainer.train()
