"""sentence-transformers: MultipleNegativesRankingLoss, which holds the model: sentence_transformers_ranking.py FOLDER"""

import sys

import language
from datasets import Dataset
from sentence_transformers import (SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments,
                                   models)
from sentence_transformers.losses import MultipleNegativesRankingLoss
from transformers import BertConfig, BertModel

folder = sys.argv[1]
language.set_seed(1)
BertModel(BertConfig(vocab_size=len(language.VOCABULARY), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                     intermediate_size=32, max_position_embeddings=32)).save_pretrained(folder + "/bert")
language.tokenizer().save_pretrained(folder + "/bert")
words = models.Transformer(folder + "/bert", max_seq_length=24)
model = SentenceTransformer(modules=[words, models.Pooling(words.get_word_embedding_dimension())], device="cpu")
pairs = Dataset.from_list([{"anchor": asked, "positive": answer} for asked, answer, _ in language.texts(32)])
trainer = SentenceTransformerTrainer(
    model=model, train_dataset=pairs.select(range(24)), eval_dataset=pairs.select(range(24, 32)),
    loss=MultipleNegativesRankingLoss(model), callbacks=[language.Saying()],
    args=SentenceTransformerTrainingArguments(output_dir=folder, eval_strategy="steps", eval_steps=3, **language.ARGUMENTS))
trainer.train()
