"""Fine-tuning and distillation: pairs of texts in, parameters out."""
