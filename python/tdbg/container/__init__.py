"""What a training container of SageMaker holds, for ``tdbg serve``: archives, and XGBoost's algorithm mode."""
