"""Hugging Face's Trainer: examples of any length are echoed, and the collator pads each batch."""

import torch
from transformers import TrainingArguments

from pyecho.integrations.transformers import EchoTrainer


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(50, 8, padding_idx=0)
        self.layer = torch.nn.Linear(8, 3)

    def forward(self, input_ids, labels):
        logits = self.layer(self.embed(input_ids).mean(1))
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


def padded(examples):  # or DataCollatorWithPadding(tokenizer)
    ids = [torch.tensor(example["input_ids"]) for example in examples]
    return {
        "input_ids": torch.nn.utils.rnn.pad_sequence(ids, batch_first=True),
        "labels": torch.tensor([example["labels"] for example in examples]),
    }


def make_trainer(folder, **options):
    dataset = [{"input_ids": list(range(1, 2 + n % 7)), "labels": n % 3} for n in range(64)]
    arguments = TrainingArguments(
        folder,
        num_train_epochs=2,
        per_device_train_batch_size=8,
        logging_steps=4,
        save_steps=5,
        report_to="none",
        use_cpu=True,
        **options,
    )
    return EchoTrainer(
        Model(), arguments, train_dataset=dataset, data_collator=padded, echo={"factor": 2}
    )


def main(folder="checkpoints"):
    trainer = make_trainer(folder)
    trainer.train()  # resume_from_checkpoint=True goes on with the next batch
    return trainer


if __name__ == "__main__":
    main()
