"""A loss with negatives from the batch, so that whole batches are echoed."""

from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers

from pyecho.integrations.transformers import EchoTrainerMixin


class EchoTrainer(EchoTrainerMixin, SentenceTransformerTrainer): ...


words = {"[UNK]": 0, **{f"word{number}": number + 1 for number in range(64)}}
tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=16)], device="cpu")
pairs = Dataset.from_dict(
    {
        "anchor": [f"word{number}" for number in range(64)],
        "positive": [f"word{(number + 1) % 64}" for number in range(64)],
    }
)
arguments = SentenceTransformerTrainingArguments(
    "out", per_device_train_batch_size=16, num_train_epochs=1, report_to=[], use_cpu=True
)
loss = MultipleNegativesRankingLoss(model)
options = {"factor": 2, "batch_size": None}  # whole batches, so that no pair meets itself
trainer = EchoTrainer(model=model, args=arguments, train_dataset=pairs, loss=loss, echo=options)
assert trainer.train().global_step == 8
