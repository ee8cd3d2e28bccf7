"""TRL's group relative policy optimization: the model writes, what it wrote is rewarded, and then it trains.

trl_grpo.py FOLDER
"""

import sys

import language
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer


def numbers(completions, **others):
    """A word that is a number is worth one."""
    return [float(sum(word in language.WORDS for word in text.split())) for text in completions]


folder = sys.argv[1]
language.model().save_pretrained(folder + "/start")        # read twice: what trains, and what it is compared with
trainer = GRPOTrainer(
    model=folder + "/start", processing_class=language.tokenizer(), reward_funcs=numbers,
    train_dataset=Dataset.from_list([{"prompt": asked} for asked, _, _ in language.texts(24)]), callbacks=[language.Saying()],
    args=GRPOConfig(output_dir=folder, num_generations=4, max_completion_length=8, bf16=False, beta=0.1,
                    model_init_kwargs={"dtype": "float32"}, gradient_checkpointing=False, **language.ARGUMENTS))
trainer.train()
