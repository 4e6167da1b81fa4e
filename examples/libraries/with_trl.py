"""The SFTTrainer, with echoes."""

from datasets import Dataset
from tokenizers import Tokenizer, models
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

from pyecho.integrations.transformers import EchoTrainerMixin


class EchoTrainer(EchoTrainerMixin, SFTTrainer): ...


words = {"<end>": 0, **{f"word{number}": number + 1 for number in range(63)}}
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="<end>")),
    eos_token="<end>",
    pad_token="<end>",
)
model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_embd=32, n_layer=1, n_head=2))
texts = Dataset.from_dict({"input_ids": [[row, row + 1, row + 2, 0] for row in range(1, 33)]})
arguments = SFTConfig(
    "out", per_device_train_batch_size=8, num_train_epochs=1, report_to=[], use_cpu=True, bf16=False
)
trainer = EchoTrainer(
    model=model,
    args=arguments,
    train_dataset=texts,
    processing_class=tokenizer,
    echo={"factor": 2, "shuffle_buffer": 16},
)
assert trainer.train().global_step == 8
